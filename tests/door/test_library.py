"""Sources of installed packages, read without importing them and without leaving them."""

import pytest

from reforward.domain.errors import BadInput
from reforward.propose import library


def test_sources_are_read_and_searched():
    assert "def rms_norm(" in "".join(library.lines("torch/nn/functional.py"))
    found = library.search("def rms_norm(", "torch/nn")
    assert [line.partition(":")[0] for line in found] == ["torch/nn/functional.py"]
    assert len(library.search("self", "torch/nn/modules")) == library.MOST_FOUND


@pytest.mark.parametrize(
    "path", ["torch/../../../../etc/passwd", "os/path.py", "torch/none.py", "torch", "/etc/passwd", "torch/version", ""]
)
def test_what_is_no_source_of_them_is_refused(path):
    with pytest.raises(BadInput, match=r"there is no file|is no source"):
        library.lines(path)


def test_searches_that_make_no_sense_are_refused():
    for below in ("numpy", "torch/../..", "", "/"):
        with pytest.raises(BadInput, match="not below an installed package"):
            library.search("x", below)
