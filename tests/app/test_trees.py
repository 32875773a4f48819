"""Source trees on disk: read, refuse, export, and read back as the same candidate."""

import pytest

from reforward.app.trees import read_tree, write_tree
from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import BadInput

STOCK = Candidate(
    host="lm", entry="forward.py:Forward", files=(SourceFile(path="forward.py", text="class Forward: ...\n"),)
)


def test_an_exported_tree_reads_back_as_the_same_candidate(tmp_path):
    candidate = STOCK.with_files({"kernels/a.cpp": "int x;\n", "build.py": "def build(out): ...\n"})
    written = write_tree(candidate, tmp_path / "out", "gain +25 %\nmachine X\n")
    assert {path.name for path in written} == {"forward.py", "a.cpp", "build.py", "EVIDENCE.md"}
    text = (tmp_path / "out/forward.py").read_text()
    assert "# gain +25 %" in text
    compile(text, "forward.py", "exec")
    assert read_tree(tmp_path / "out", STOCK).id == candidate.id


def test_export_never_overwrites(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(BadInput, match="not empty"):
        write_tree(STOCK, tmp_path, "")
    assert (tmp_path / "mine.txt").read_text() == "x"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: None, "is empty"),
        (lambda d: (d / "other.py").write_text("x"), "has no forward.py"),
        (lambda d: (d / "forward.py").symlink_to("/etc/passwd"), "link"),
        (lambda d: (d / "forward.py").write_bytes(b"\xff\xfe\x00"), "not UTF-8"),
        (lambda d: (d / "forward.py").write_text("x" * 2_000_001), "bytes"),
        (
            lambda d: [(d / f"f{i}.py").write_text("x") for i in range(70)] + [(d / "forward.py").write_text("x")],
            "files",
        ),
    ],
)
def test_bad_trees_are_refused_by_name(tmp_path, make, words):
    make(tmp_path)
    with pytest.raises(BadInput, match=words):
        read_tree(tmp_path, STOCK)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(BadInput, match="not a folder"):
        read_tree(tmp_path / "nope", STOCK)


def test_caches_and_hidden_folders_are_left_out(tmp_path):
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/forward.cpython-311.pyc").write_bytes(b"\xff")
    (tmp_path / "forward.py").write_text(STOCK.files[0].text)
    assert read_tree(tmp_path, STOCK).id == STOCK.id
