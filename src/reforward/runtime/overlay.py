"""Imports of a module candidate: a name that the tree has comes from the tree, any other from where it is installed."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType


def module_name(path: str) -> str:
    """`pkg/model.py` to `pkg.model`, `pkg/__init__.py` to `pkg`."""
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Overlay(importlib.abc.MetaPathFinder):
    """Finds the modules of a tree that lies in `folder`, before any other finder is asked."""

    def __init__(self, files: Mapping[str, str], folder: Path) -> None:
        self.places = {module_name(path): folder / path for path in files if path.endswith(".py")}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The tree's file for this name, if there is one."""
        place = self.places.get(fullname)
        if place is None:
            return None
        if place.name != "__init__.py":
            return importlib.util.spec_from_file_location(fullname, place)
        installed = self._installed(fullname, path)
        return importlib.util.spec_from_file_location(
            fullname, place, submodule_search_locations=[str(place.parent), *installed]
        )

    @staticmethod
    def _installed(fullname: str, path: Sequence[str] | None) -> list[str]:
        """Where the package is installed, for the submodules and data that the tree leaves out."""
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        return list(found.submodule_search_locations or []) if found else []


def install(files: Mapping[str, str], folder: Path) -> None:
    """Put the tree in front. Call it before anything that imports the names of the tree."""
    loaded = [name for name in (module_name(path) for path in files if path.endswith(".py")) if name in sys.modules]
    assert not loaded, f"already imported: {loaded}"
    sys.meta_path.insert(0, Overlay(files, folder))
