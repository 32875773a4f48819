"""One server for all tests that leave it as it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reforward.app.live.serving import Serving
from serve.server import running, write_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny model."""
    return write_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def serving(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A warm server."""
    with running(model, tmp_path_factory.mktemp("home"), length=256, queue=8) as one:
        yield one
