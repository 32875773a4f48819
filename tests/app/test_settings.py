"""Options that make no sense are refused by name."""

import pytest

from reforward.app.settings import Settings
from reforward.domain.errors import BadInput


@pytest.mark.parametrize("pairs", [0, 3, 1025])
def test_a_confirmation_needs_some_pairs_and_an_end(pairs: int) -> None:
    with pytest.raises(BadInput, match=f"--max-pairs must lie between 4 and 1024, got {pairs}"):
        Settings(max_pairs=pairs)
