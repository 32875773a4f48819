"""The build stage: what it makes, when it is repeated, and what it refuses."""

import os
import stat
from pathlib import Path

import pytest

from engine.tiny import LIMITS, variant
from reforward.domain.candidate import Candidate
from reforward.domain.errors import CandidateFailed
from reforward.domain.spec import Segment
from reforward.engine.builds import compiler_version, publish
from reforward.engine.cpu import CpuEngine, Deadlines
from reforward.engine.leftovers import own_folder, sweep

needs_compiler = pytest.mark.skipif(not compiler_version(), reason="no g++ on this machine")
BUILD = (
    "from pathlib import Path\n"
    "from reforward.runtime.native import compile_shared\n"
    "def build(out):\n"
    "    compile_shared([Path(__file__).parent / 'add.cpp'], out, 'add')\n"
)
USE = (
    "    def __init__(self, build):\n"
    "        super().__init__(build)\n"
    "        from reforward.runtime.native import load_shared\n"
    "        self.answer = load_shared(build.artifacts / 'add.so').add(40, 2)\n"
    "    def step(self, batch, logits):\n"
    "        logits.fill_(0)\n"
    "        logits[:, self.answer] = 1\n"
)


DEEP = "import os\ndef build(out):\n  os.chdir(out)\n  for n in range({}): os.mkdir('d'); os.chdir('d')\n"
LONG = "import os\ndef build(out):\n  os.chdir(out)\n  for n in range(17): os.mkdir('x' * 255); os.chdir('x' * 255)\n"


def built(text: str, **more: str) -> Candidate:
    return variant("", more={"build.py": text} | {f"{name}.cpp": source for name, source in more.items()})


def fail(engine: CpuEngine, candidate: Candidate) -> CandidateFailed:
    with pytest.raises(CandidateFailed) as caught:
        engine.prepare(candidate)
    leftovers = [path.name for path in engine.builds.folder.glob(".build-*")]
    assert leftovers == []
    return caught.value


@needs_compiler
def test_a_library_is_built_once_and_used(engine: CpuEngine) -> None:
    source = 'extern "C" int add(int a, int b) { return a + b; }\n'
    candidate = variant(USE, more={"build.py": BUILD, "add.cpp": source})
    first, second = engine.prepare(candidate), engine.prepare(candidate)
    assert first.build_s > 0
    assert (second.build_s, second.artifacts) == (0, first.artifacts)
    worker = engine.start_lm(second, depth=1, limits=LIMITS)
    try:
        assert worker.step([1], [Segment(slot=0, start=0, length=1)], [0], 0) == [42]
    finally:
        worker.close()
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o222 for path in Path(first.artifacts).iterdir()}
    assert modes == {0}


@needs_compiler
def test_other_sources_are_another_build(engine: CpuEngine) -> None:
    keys = {engine.builds.key(built(BUILD, add=f"int f() {{ return {n}; }}")) for n in range(3)}
    assert len(keys) == 3


@needs_compiler
def test_a_compile_error_carries_the_compilers_words(engine: CpuEngine) -> None:
    failure = fail(engine, built(BUILD, add="int f( { return undeclared; }\n"))
    assert failure.stage == "build"
    assert "error" in failure.reason
    assert "add.cpp:1" in failure.log


@pytest.mark.parametrize(
    ("text", "stage", "words"),
    [
        ("def build(out): raise KeyError('lost')\n", "build", "KeyError"),
        ("import nowhere\n", "build", "nowhere"),
        ("def make(out): pass\n", "build", "build"),
        ("def build(out:\n", "source", "build.py, line 1"),
        ("import os\ndef build(out): os._exit(0)\n", "build", "code 0"),
        ("import os\ndef build(out): os.symlink('/etc/passwd', out / 'x')\n", "build", "no plain file"),
        ("import os\ndef build(out): os.mkfifo(out / 'x')\n", "build", "no plain file"),
        ("import os\ndef build(out): os.symlink(b'/etc', bytes(out) + b'/\\xff')\n", "build", "no plain file"),
        (DEEP.format(2000), "build", "16 folders deep"),
        (DEEP.format(17), "build", "16 folders deep"),
        (LONG, "build", "name too long"),
        ("def build(out):\n  for n in range(4097): (out / str(n)).write_text('')\n", "build", "4096 files"),
        (
            "import os\ndef build(out):\n  (out / 'd' / 'e').mkdir(parents=True); os.chmod(out / 'd', 0); 1 / 0\n",
            "build",
            "Zero",
        ),
    ],
)
def test_a_broken_build(engine: CpuEngine, text: str, stage: str, words: str) -> None:
    failure = fail(engine, built(text))
    assert failure.stage == stage
    assert words in failure.reason


def test_a_build_has_a_deadline(own_engine: CpuEngine) -> None:
    own_engine.deadlines = Deadlines(build_s=0.5)
    failure = fail(own_engine, built("import time\ndef build(out): time.sleep(60)\n"))
    assert (failure.stage, failure.reason) == ("build", "no answer within 0.5 s")


def test_a_build_writes_only_to_its_own_folder(engine: CpuEngine, tmp_path: Path) -> None:
    if "landlock" not in engine.target.launch.sandbox:
        pytest.skip("this kernel has no Landlock")
    other = engine.builds.folder / "planted"
    for place in (other, tmp_path / "planted"):
        failure = fail(engine, built(f"def build(out): open({str(place)!r}, 'w')\n"))
        assert "PermissionError" in failure.reason
        assert not place.exists()


def test_a_worker_cannot_change_artifacts(engine: CpuEngine) -> None:
    if "landlock" not in engine.target.launch.sandbox:
        pytest.skip("this kernel has no Landlock")
    change = (
        "    def __init__(self, build):\n        super().__init__(build)\n"
        "        assert (build.artifacts / 'x').read_text() == 'made'\n"
        "        os.chmod(build.artifacts, 0o777)\n        (build.artifacts / 'x').unlink()\n"
    )
    made = {"build.py": "def build(out): (out / 'x').write_text('made')\n"}
    prepared = engine.prepare(variant(change, more=made))
    with pytest.raises(CandidateFailed, match="PermissionError"):
        engine.start_lm(prepared, depth=1, limits=LIMITS)
    assert [path.name for path in Path(prepared.artifacts).iterdir()] == ["x"]


def test_two_that_build_the_same_at_once_share_it(tmp_path: Path) -> None:
    final = tmp_path / "final"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
        publish(tmp_path / name, final)
    assert (final / "x").read_text() == "one"


def test_a_killed_build_is_swept_up_and_a_running_one_is_not(tmp_path: Path) -> None:
    with own_folder(tmp_path, ".build-") as held:
        abandoned = tmp_path / ".build-abandoned"
        (abandoned / "deep").mkdir(parents=True)
        for folder in (held, abandoned):
            os.utime(folder, (1, 1))
        fresh = tmp_path / ".build-fresh"
        fresh.mkdir()
        sweep(tmp_path, ".build-")
        assert sorted(tmp_path.iterdir()) == sorted([held, fresh])
    assert list(tmp_path.iterdir()) == [fresh]
