"""The evidence beside a recipe is that of the very tree beside it."""

from pathlib import Path

import pytest

from reforward.app.trees import EVIDENCE, read_files
from reforward.domain.candidate import Candidate

ROOT = Path(__file__).parents[2] / "recipes"
FOUND = sorted(ROOT.rglob(EVIDENCE))
ENTRIES = {"forecaster.py": ("module", "forecaster.py:Forecaster"), "forward.py": ("lm", "forward.py:Forward")}


def test_there_is_evidence() -> None:
    assert FOUND


@pytest.mark.parametrize("path", FOUND, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_it_names_the_tree_that_it_lies_beside(path: Path) -> None:
    files = read_files(path.parent)
    host, entry = next(ENTRIES[file.path] for file in files if file.path in ENTRIES)
    candidates = [line.split()[1] for line in path.read_text().splitlines() if line.startswith("candidate ")]
    assert candidates
    assert set(candidates) == {str(Candidate(host=host, entry=entry, files=files).id)}
