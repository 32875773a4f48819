"""What can be done with traces: convert, replay against a server, look after what a capture has kept."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reforward.app.config import Config, environment, load_config
from reforward.app.extras import need
from reforward.domain.errors import BadInput
from reforward.traffic.convert import Form, write_trace
from reforward.traffic.segments import CONTENTS, SHAPES
from reforward.traffic.segments import purge as purge_files
from reforward.traffic.trace import Trace, read_trace

if TYPE_CHECKING:
    from reforward.traffic.load import Replayed

DAY_S = 86_400.0
CONTENT = "content"
"""Folder of contents inside a capture."""


def capture_folder(config: Config, name: str) -> Path:
    """Where a capture of this name keeps its files."""
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise BadInput(f"{name!r} is no name of a capture: use letters, digits, - and _")
    return config.home / "traffic" / name


def shape_key(config: Config) -> Path:
    """The file of the key that hashes prefixes: beside the captures, never among them."""
    return config.home / "keys" / "shape.key"


def content_key(config: Config) -> Path:
    """The file of the key that encrypts contents."""
    return config.home / "keys" / "content.key"


def convert(file: Path, out: Path, form: Form) -> tuple[Trace, int]:
    """The trace that was read, and the rows that were written."""
    trace = read_trace(file)
    return trace, write_trace(trace, out, form)


def replay(
    file: Path,
    url: str,
    *,
    model: str | None = None,
    length_scale: float = 1.0,
    time_scale: float = 1.0,
    limit: int | None = None,
    seed: int = 0,
    done: Callable[[int], None] = lambda count: None,
) -> "Replayed":
    """Play a trace against the OpenAI-compatible server at `url`; the key, if it wants one, is `OPENAI_API_KEY`."""
    need("capture")
    from reforward.traffic.load import Play, play

    trace = read_trace(file)
    plan = Play(
        requests=trace.requests[:limit],
        header=trace.header,
        url=url,
        model=model,
        key=environment().get("OPENAI_API_KEY", ""),
        length_scale=length_scale,
        time_scale=time_scale,
        seed=seed,
    )
    return play(plan, done)


def kept_contents(name: str, days: float) -> Iterator[dict[str, Any]]:
    """Prompts and answers of a capture that are at most so old; that they were read is written down."""
    need("capture")
    from reforward.traffic.content import contents
    from reforward.traffic.keys import secret

    config = load_config()
    folder = capture_folder(config, name) / CONTENT
    if not folder.is_dir() or not content_key(config).exists():
        raise BadInput(f"the capture {name!r} has no contents; they are kept only with reforward capture --content")
    return contents(folder, secret(content_key(config)), days * DAY_S)


def purge(name: str | None, days: float, *, contents_only: bool) -> tuple[int, ...]:
    """Files of shapes and of contents that were deleted: those whose last line is at least `days` old.

    With 0 days and no name the key of the contents goes too, so that copies of them cannot be read either.
    """
    config = load_config()
    home = config.home / "traffic"
    captures = [capture_folder(config, name)] if name else sorted(home.iterdir()) if home.is_dir() else []
    if name and not captures[0].is_dir():
        raise BadInput(f"there is no capture {name!r} in {home}")
    older = days * DAY_S
    shapes = 0 if contents_only else sum(purge_files(folder, SHAPES, older) for folder in captures)
    secrets = sum(purge_files(folder / CONTENT, CONTENTS, older) for folder in captures)
    if not name and days == 0:
        content_key(config).unlink(missing_ok=True)
    return shapes, secrets
