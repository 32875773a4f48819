"""Text is told once, whole characters only; stop strings are found wherever they are cut."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reforward.serve.text import Detokenizer, Stops


def decode(tokens: list[int]) -> str:
    """A token is a byte."""
    return bytes(tokens).decode(errors="replace")


def told(data: bytes) -> list[str]:
    words = Detokenizer(decode=decode)
    return [*(words.push(byte) for byte in data), words.flush()]


@given(st.text(max_size=60))
def test_whole_text_arrives_without_half_characters(text: str) -> None:
    parts = told(text.encode())
    assert "".join(parts) == text
    if "\ufffd" not in text:
        assert all("\ufffd" not in part for part in parts)


def test_bytes_that_are_no_text_are_not_held_for_ever() -> None:
    parts = told(b"\xff" * 10 + b"a")
    assert "".join(parts) == "\ufffd" * 10 + "a"
    assert any(parts[:5])


def pushed(parts: Sequence[str], stops: Sequence[str]) -> tuple[str, bool]:
    stop = Stops(strings=stops)
    safe = "".join(stop.push(part) for part in parts)
    return safe + ("" if stop.found else stop.flush()), stop.found


@pytest.mark.parametrize(
    ("parts", "stops", "expected"),
    [
        (["ab", "cSTO", "P d"], ["STOP"], ("abc", True)),
        (["aST", "OX"], ["STOP"], ("aSTOX", False)),
        (["one\n", "\ntwo"], ["\n\n"], ("one", True)),
        (["aab", "aac"], ["aabaac", "baa"], ("", True)),
        (["xST"], ["STOP"], ("xST", False)),
        (["abc"], [], ("abc", False)),
    ],
)
def test_stop_strings(parts: list[str], stops: list[str], expected: tuple[str, bool]) -> None:
    assert pushed(parts, stops) == expected


@given(st.text("ab", max_size=30), st.text("ab", min_size=1, max_size=4), st.lists(st.integers(0, 30), max_size=5))
def test_cuts_do_not_matter(text: str, stop: str, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(text)]
    parts = [text[a:b] for a, b in pairwise(places)]
    assert pushed(parts, [stop]) == (text.partition(stop)[0], stop in text)
