"""What users can type, listed: a change of the surface is seen in review, and documents name only what exists."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from house.source import ROOT
from reforward.cli.verbs import app

SNAPSHOT = Path(__file__).with_name("cli.txt")
DOCUMENTS = ("README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/decisions.md", "docs/log.md")
TYPED = re.compile(r"(?:^|[`$/ ])reforward ((?:[a-z]+)(?: [a-z]+)?)((?: +[^\s`]+)*)", re.MULTILINE)
MAKE = re.compile(r"\bmake ([a-z]+)\b")
CODE = re.compile(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", re.DOTALL)


def _verbs(command: Any, name: str = "reforward") -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield name, command
        return
    usual = getattr(command, "usual", None)  # the command of a group that is typed without its name
    for child in sorted(children):
        yield from _verbs(children[child], name if child == usual else f"{name} {child}")


VERBS = dict(_verbs(typer.main.get_command(app)))


def _line(name: str, command: Any) -> str:
    arguments = [p.name.upper() for p in command.params if p.param_type_name == "argument"]
    options = sorted(option for p in command.params if p.param_type_name == "option" for option in p.opts)
    return " ".join([name, *arguments, *options])


def test_the_command_line_is_the_listed_one() -> None:
    lines = "".join(_line(name, command) + "\n" for name, command in VERBS.items())
    assert lines == SNAPSHOT.read_text(), (
        f"if the change is meant, write it to {SNAPSHOT.name} and CHANGELOG.md:\n{lines}"
    )


def test_every_verb_and_option_explains_itself() -> None:
    for name, command in VERBS.items():
        assert command.help, name
        assert [p.name for p in command.params if p.param_type_name == "option" and not p.help] == [], name


def _code(document: str) -> str:
    """Everything in backticks."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return "\n".join(block or inline for block, inline in CODE.findall(text))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_name_commands_that_exist(document: str) -> None:
    for words, rest in TYPED.findall(_code(document)):
        name = _longest(f"reforward {words}")
        assert name, f"{document} types `reforward {words}`, which does not exist"
        known = {option for p in VERBS[name].params for option in p.opts} | {"--help"}
        used = set(re.findall(r"--[a-z-]+", rest))
        assert used <= known, f"{document}: {name} has no {sorted(used - known)}"


def _longest(typed: str) -> str | None:
    return next((name for name in (typed, typed.rsplit(" ", 1)[0]) if name in VERBS), None)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_name_targets_that_exist(document: str) -> None:
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "bench", "clean"} == targets
    assert set(MAKE.findall(_code(document))) <= targets


def test_the_readme_shows_the_two_commands() -> None:
    typed = _code("README.md")
    assert "make demo" in typed
    assert "make test" in typed


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    local = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [link for link in local if not ((ROOT / document).parent / link).exists()] == []
