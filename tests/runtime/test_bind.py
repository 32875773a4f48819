"""From a source tree to an object: siblings are found, nothing else is hidden, and every fault names its stage."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import CandidateFailed
from reforward.models.families import stock_candidate
from reforward.runtime import bind

ENTRY = "forward.py:Forward"
GOOD = """
class Forward:
    @staticmethod
    def state(spec, limits, dtype): return ()
    def __init__(self, build): ...
    def step(self, batch, logits): ...
"""


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    """A worker binds once and ends; a test process must forget."""
    modules, path, finders = set(sys.modules), list(sys.path), list(sys.meta_path)
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def candidate(files: dict[str, str], entry: str = ENTRY) -> Candidate:
    tree = tuple(SourceFile(path=path, text=files[path]) for path in sorted(files))
    return Candidate(host="lm", entry=entry, files=tree)


def failure(files: dict[str, str], folder: Path) -> CandidateFailed:
    with pytest.raises(CandidateFailed) as caught:
        bind.load_forward(files, ENTRY, folder)
    return caught.value


def test_siblings_and_packages_are_imported_by_plain_names(tmp_path: Path) -> None:
    files = {
        "forward.py": "from kernels import SIZE\nfrom parts.more import TIMES\n" + GOOD + "    size = SIZE * TIMES\n",
        "kernels.py": "SIZE = 7\n",
        "parts/more.py": "from parts.deep import TIMES\n",
        "parts/deep.py": "TIMES = 6\n",
        "notes.md": "not Python: {",
    }
    assert bind.load_forward(files, ENTRY, tmp_path).size == 42
    assert sys.modules["kernels"].__file__ == str(tmp_path / "kernels.py")


def test_the_stock_forward_is_bound_as_it_is(tmp_path: Path) -> None:
    stock = stock_candidate("llama")
    files = {file.path: file.text for file in stock.files}
    assert bind.load_forward(files, stock.entry, tmp_path).__name__ == "Forward"
    assert bind.watermark(files, stock.entry, "lm", tmp_path) == stock.id


def test_the_watermark_is_of_the_files_as_they_lie(tmp_path: Path) -> None:
    rewrites_itself = "from pathlib import Path\nPath(__file__).write_text('')\n" + GOOD
    files = {"forward.py": rewrites_itself}
    bind.load_forward(files, ENTRY, tmp_path)
    assert bind.watermark(files, ENTRY, "lm", tmp_path) != candidate(files).id


@pytest.mark.parametrize(
    ("text", "stage", "words"),
    [
        ("x = 1\ndef f(:\n", "source", "forward.py, line 2"),
        ("x = '\0'\n", "source", "forward.py"),
        ("x = " + "-" * 900_000 + "1\n", "source", "forward.py"),
        ("x = 1" + "+1" * 100_000 + "\n", "source", "forward.py"),
        ("Other = int\n", "load", "exports no 'Forward'"),
        ("Forward = 3\n", "load", "is a int, not a class"),
        ("def Forward(build): ...\n", "load", "is a function, not a class"),
        ("import nothing_like_it\n", "load", "ModuleNotFoundError"),
        ("1 / 0\n", "load", r"ZeroDivisionError: division by zero \(forward.py, line 1: 1 / 0\)"),
        (GOOD.replace("def step", "def stop"), "load", "no method step"),
        (GOOD.replace("batch, logits", "batch"), "load", "step\\(self, batch\\) cannot be called"),
        (GOOD.replace("self, build", "self"), "load", "__init__\\(self\\) cannot be called"),
        (
            GOOD.replace("    @staticmethod\n", "").replace("state(spec", "state(self, spec"),
            "load",
            "state\\(self, spec",
        ),
        (GOOD + "    def run(self, last): ...\n", "load", "run\\(self, last\\) cannot be called"),
        (GOOD + "    @staticmethod\n    def pack(weights): ...\n", "load", "pack\\(weights\\) cannot be called"),
        (GOOD + "    pack = 3\n", "load", "no method pack"),
    ],
)
def test_faults_name_their_stage(text: str, stage: str, words: str, tmp_path: Path) -> None:
    failed = failure({"forward.py": text}, tmp_path)
    assert failed.stage == stage
    with pytest.raises(CandidateFailed, match=words):
        raise failed


def test_an_import_that_raises_leaves_its_traceback(tmp_path: Path) -> None:
    failed = failure(
        {"forward.py": "import helper\n", "helper.py": "def f():\n    raise KeyError('lost')\nf()\n"}, tmp_path
    )
    assert failed.reason.endswith("(helper.py, line 2: raise KeyError('lost'))"), "the place that raised"
    assert "helper.py" in failed.log
    assert "lost" in failed.log


def test_a_syntax_error_names_its_place_once(tmp_path: Path) -> None:
    failed = failure({"forward.py": "x = 1\ndef f(:\n"}, tmp_path)
    assert failed.reason == "forward.py, line 2: SyntaxError: invalid syntax: def f(:"


def test_a_syntax_error_in_a_sibling_is_found_before_anything_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    first = f"open({str(mark)!r}, 'w')\n" + GOOD
    assert "later.py, line 1" in failure({"forward.py": first, "later.py": "((\n"}, tmp_path / "tree").reason
    assert not mark.exists()


@pytest.mark.parametrize("path", ["json.py", "torch.py", "reforward/runtime.py", "random/x.py"])
def test_no_file_hides_a_module(path: str, tmp_path: Path) -> None:
    failed = failure({"forward.py": GOOD, path: ""}, tmp_path)
    assert failed.stage == "source"
    assert path in failed.reason


def test_a_build_function_is_loaded_alike(tmp_path: Path) -> None:
    files = {"build.py": "def build(out):\n    (out / 'made').write_text('x')\n"}
    bind.load_function(files, "build.py:build", tmp_path)(tmp_path)
    assert (tmp_path / "made").read_text() == "x"
    with pytest.raises(CandidateFailed, match="not a function"):
        bind.load_function({"build2.py": "build = 3\n"}, "build2.py:build", tmp_path)


def test_an_overlay_stands_in_front_of_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "installed"
    bind.write_files(
        {
            "shop/__init__.py": "",
            "shop/model.py": "from shop.parts import N\nclass Model:\n    n = N\n",
            "shop/parts.py": "N = 1\n",
            "shop/load.py": "from shop.model import Model\n",
        },
        installed,
    )
    monkeypatch.syspath_prepend(str(installed))
    files = {"shop/model.py": "from .parts import N\nclass Model:\n    n = N + 1\n"}
    found = bind.load_overlay(files, "shop/model.py:Model", tmp_path / "tree", beside="shop.load:Model")
    from shop.load import Model  # pyright: ignore[reportMissingImports]

    assert found is Model
    assert Model.n == 2


def test_an_overlay_without_its_class_fails(tmp_path: Path) -> None:
    with pytest.raises(CandidateFailed, match="exports no class 'Model'"):
        bind.load_overlay({"lone.py": "Model = 1\n"}, "lone.py:Model", tmp_path, beside="lone:Model")
