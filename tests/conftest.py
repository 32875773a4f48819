"""Order of the tests: the rules of the house, then the parts, then runs of real models."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cheap and telling first, so that a broken rule is seen before minutes have passed."""
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("real") or item.get_closest_marker("gpu"):
        return 2
    return 0 if "house" in item.path.relative_to(TESTS).parts else 1
