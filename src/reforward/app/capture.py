"""A capture in front of somebody's server: a proxy, a tap, and what is kept."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from reforward.app.config import load_config
from reforward.app.traces import CONTENT, DAY_S, capture_folder, content_key, need_capture, shape_key

if TYPE_CHECKING:
    from reforward.traffic.tap import Counts


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

    Contents are kept of `content_share` of the calls, for `content_days`; 0 keeps none and makes no key for them.
    """
    need_capture()
    from reforward.traffic.blocks import BYTES
    from reforward.traffic.content import ContentStore
    from reforward.traffic.keys import secret
    from reforward.traffic.proxy import Proxy, serve
    from reforward.traffic.shapes import ShapeStore
    from reforward.traffic.tap import Sink, Tap

    config = load_config()
    folder = capture_folder(config, name)
    sinks: list[Sink] = [
        ShapeStore(folder, secret(shape_key(config)), unit=BYTES, source=f"captured before {upstream}")
    ]
    if content_share:
        key = secret(content_key(config))
        sinks.append(ContentStore(folder / CONTENT, key, share=content_share, keep_s=content_days * DAY_S))
    tap = Tap(sinks)
    try:
        proxy = Proxy(upstream, tap, contents=bool(content_share))
        asyncio.run(serve(proxy, host, port, lambda bound: ready(bound, str(folder))))
    finally:
        counts = tap.close()
    return counts
