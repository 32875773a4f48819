"""Values are frozen, keyword-only and say exactly what they hold."""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from house.source import modules
from reforward.domain.candidate import Skipped, SourceFile
from reforward.domain.errors import BadInput
from reforward.domain.record import Record
from reforward.ledger.codec import KINDS

NAMES = [module.name.removesuffix(".py").replace("/", ".") for module in modules() if module.name.startswith("domain/")]
HOLDS_MUTABLE = (list, dict, set, bytearray)


def _dataclasses() -> list[type]:
    found = [
        value
        for name in NAMES
        for value in vars(importlib.import_module(f"reforward.{name.removesuffix('.__init__')}")).values()
        if isinstance(value, type)
        and dataclasses.is_dataclass(value)
        and value.__module__.startswith("reforward.domain")
    ]
    return sorted(set(found), key=lambda kind: kind.__qualname__)


@pytest.mark.parametrize("kind", _dataclasses(), ids=lambda kind: kind.__name__)
def test_values(kind: Any) -> None:
    assert kind.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(kind))
    for name, hint in get_type_hints(kind).items():
        assert not _mentions(hint, (Any, *HOLDS_MUTABLE)), f"{kind.__name__}.{name}: {hint}"


def _mentions(hint: Any, what: tuple[Any, ...]) -> bool:
    if hint in what:
        return True
    inner = getattr(hint, "__args__", ())
    return getattr(hint, "__origin__", None) in what or any(_mentions(each, what) for each in inner)


def test_the_ledger_can_hold_every_record() -> None:
    kinds = [kind for kind in _dataclasses() if issubclass(kind, Record) and kind is not Record]
    assert {kind.tag: kind for kind in kinds} == KINDS


@pytest.mark.parametrize("make", [lambda text: SourceFile(path="a.py", text=text), lambda text: _skipped(text).id])
def test_text_that_no_encoding_holds_is_bad_input(make: Callable[[str], object]) -> None:
    make("ä \u2028 𝄞")
    with pytest.raises(BadInput, match="which is no text"):
        make("half \ud800")


def _skipped(what: str) -> Skipped:
    return Skipped(run="run:b2:00", author="a", what=what, remedy="")
