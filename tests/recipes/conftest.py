"""Recipes are candidates, not packages: their files import one another by plain names, as in a worker."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "recipes" / "llama-3.2-1b" / "h200"


class Recipe:
    """Imports the recipe's files by name."""

    folder = FOLDER

    def load(self, name: str) -> ModuleType:
        """The module `name`.py of the recipe."""
        return importlib.import_module(name)


@pytest.fixture
def recipe() -> Iterator[Recipe]:
    """The recipe with its folder in front of the path; afterwards none of its generic names is left imported."""
    names = {path.stem for path in FOLDER.glob("*.py")}
    kept = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    yield Recipe()
    sys.path.remove(str(FOLDER))
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(kept)
