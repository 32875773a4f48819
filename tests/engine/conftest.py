"""One engine for all tests that do not end it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.tiny import open_engine, write_checkpoint
from reforward.engine.cpu import CpuEngine


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of the tiny model's weights."""
    return write_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def engine(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuEngine]:
    """An engine on the tiny model."""
    opened = open_engine(checkpoint, tmp_path_factory.mktemp("cache"))
    yield opened
    opened.close()


@pytest.fixture
def own_engine(checkpoint: Path, tmp_path: Path) -> Iterator[CpuEngine]:
    """An engine that the test may break."""
    opened = open_engine(checkpoint, tmp_path)
    yield opened
    opened.close()
