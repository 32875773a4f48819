"""The native forward of Fracast-0 has the package's bits: on gaps, constant series, non-finite values, and in batches."""

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from reforward.runtime import bind
from reforward.runtime.module import ModuleHost, export_state, load_subject
from reforward.runtime.native import COMPILER

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "recipes" / "fracast" / "cpu"
EXAMPLE = ROOT / "examples" / "science" / "fracast"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no {COMPILER}"),
    pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="no AVX-512"),
    pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="PyTorch without MKL sums in another order"),
    pytest.mark.skipif(importlib.util.find_spec("fracast") is None, reason="fracast is not installed"),
]


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    """A worker binds once and ends; a test process must forget, and take its threads back."""
    modules, path, finders, threads = set(sys.modules), list(sys.path), list(sys.meta_path), torch.get_num_threads()
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    torch.set_num_threads(threads)
    for name in set(sys.modules) - modules:
        if not name.startswith("torch"):
            del sys.modules[name]


class Both:
    """The package's forward and the recipe's on the same weights."""

    def __init__(self, folder: Path) -> None:
        files = {file.name: file.read_text() for file in FOLDER.iterdir() if file.suffix in (".py", ".cpp", ".h")}
        tree, artifacts = folder / "tree", folder / "artifacts"
        artifacts.mkdir()
        cls = bind.load_overlay(files, "forecaster.py:Forecaster", tree, beside=str(EXAMPLE / "subject.py"))
        bind.load_function({"build.py": files["build.py"]}, "build.py:build", tree)(artifacts)
        subject = load_subject(str(EXAMPLE / "subject.py"))
        loaded: Any = sys.modules["subject"]
        stock = named("stock_forecaster", EXAMPLE / "forecaster.py")
        loaded.rewrite = stock.Forecaster
        self.stock = loaded.load()
        self.host = ModuleHost(subject, cls, export_state(self.stock), artifacts)

    def same(self, inputs: list[Tensor]) -> bool:
        """Whether all bits agree, in a forecast that is not constant."""
        with torch.inference_mode():
            expected, made = self.stock(*inputs), self.host.call(inputs)["output"]
        assert expected.std() > 0
        return torch.equal(expected, made)


def named(name: str, file: Path) -> ModuleType:
    """A file as a module of another name."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_has_the_bits_of_the_package(tmp_path: Path) -> None:
    both = Both(tmp_path)
    drawn = [both.host.draw(seed, "fast") for seed in range(4)]
    assert both.same(drawn[0])
    assert both.same(drawn[1])
    assert both.same([torch.cat(parts) for parts in zip(*drawn, strict=True)])
    flat = [part.clone() for part in drawn[2]]
    flat[0][:] = 0.25
    assert both.same(flat)
    broken = [part.clone() for part in drawn[3]]
    broken[0][0, 0, 100], broken[0][0, 0, 200] = float("nan"), float("inf")
    broken[1][0, 0, 90:210] = True
    assert both.same(broken)


def test_it_refuses_where_the_bits_would_be_others(tmp_path: Path) -> None:
    both = Both(tmp_path)
    native: Any = sys.modules["native"]
    native.EXPONENTIAL = "Sleef_exp2f16_u10"
    with pytest.raises(RuntimeError, match="another order"):
        both.same(both.host.draw(0, "fast"))
