"""A capture in front of somebody's server: a proxy, a tap, and what is kept."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reforward.app.config import load_config
from reforward.app.extras import need
from reforward.app.live.traces import CONTENT, DAY_S, capture_folder, content_key, shape_key

if TYPE_CHECKING:
    from reforward.traffic.tap import Counts, Sink, Tap


@dataclass(frozen=True, kw_only=True)
class Keep:
    """What a capture keeps."""

    name: str = "default"
    """Of its folder in `REFORWARD_HOME/traffic`."""
    share: float = 0.0
    """Of the calls whose contents are kept, encrypted; 0 keeps none and makes no key for them."""
    days: float = 7.0
    """How long contents are kept."""


def capture(
    upstream: str,
    *,
    name: str,
    host: str,
    port: int,
    content_share: float,
    content_days: float,
    ready: Callable[[int, str], None],
) -> "Counts":
    """Proxy until the process is told to stop. `ready` hears the port and the folder of the capture.

    Contents are kept of `content_share` of the calls, for `content_days`.
    """
    need("capture")
    from reforward.traffic.blocks import BYTES
    from reforward.traffic.proxy import Proxy, serve

    keep = Keep(name=name, share=content_share, days=content_days)
    tap, folder = open_tap(keep, unit=BYTES, source=f"captured before {upstream}")
    try:
        proxy = Proxy(upstream, tap, contents=bool(content_share))
        asyncio.run(serve(proxy, host, port, lambda bound: ready(bound, str(folder))))
    finally:
        counts = tap.close()
    return counts


def open_tap(keep: Keep, *, unit: str, source: str, more: Sequence["Sink"] = ()) -> tuple["Tap", Path]:
    """A tap that writes to the capture's folder, which is returned too, and tells `more` sinks.

    `unit` is that of prompts: `token` where a front knows their ids, `byte` where it knows the text.
    """
    need("capture")
    from reforward.traffic.content import ContentStore
    from reforward.traffic.keys import secret
    from reforward.traffic.shapes import ShapeStore
    from reforward.traffic.tap import Tap

    config = load_config()
    folder = capture_folder(config, keep.name)
    sinks: list[Sink] = [ShapeStore(folder, secret(shape_key(config)), unit=unit, source=source)]
    if keep.share:
        key = secret(content_key(config))
        sinks.append(ContentStore(folder / CONTENT, key, share=keep.share, keep_s=keep.days * DAY_S))
    return Tap([*sinks, *more]), folder
