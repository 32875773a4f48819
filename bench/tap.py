"""What recording costs a server of ours: the front's thread for each call, and the tap's own thread beside it.

Calls have the shapes of the packaged conversation trace, with token ids drawn at random. The tap writes shapes to a disk, and, in a
second arm, one call in ten encrypted. Processor seconds of each thread, so that what else runs on the machine does not count.
"""

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from card import ceiling, finish, spread, table
from reforward.domain.call import Call
from reforward.traffic.content import ContentStore
from reforward.traffic.packaged import packaged_trace
from reforward.traffic.shapes import ShapeStore
from reforward.traffic.tap import Sink, Tap

ROUNDS, VOCABULARY = 5, 49_152
KEY = bytes(range(32))


def calls() -> list[Call]:
    """One for each request of the trace."""
    draw = random.Random(0)
    return [
        Call(
            arrived_s=request.arrival_s, seconds=1.0, ttft_s=0.1, finish="length",
            prompt_tokens=request.prompt_tokens, output_tokens=request.output_tokens,
            prompt=tuple(draw.choices(range(VOCABULARY), k=request.prompt_tokens)),
            answer=tuple(draw.choices(range(VOCABULARY), k=request.output_tokens)),
        )
        for request in packaged_trace().requests
    ]  # fmt: skip


def cost(told: Sequence[Call], sinks: Sequence[Sink]) -> tuple[float, float]:
    """Microseconds a call: of the thread that observes, and of the process beside it."""
    tap = Tap(sinks, most_bytes=1 << 40)
    process, thread = time.process_time(), time.thread_time()
    for call in told:
        tap.observe(call)
    front = time.thread_time() - thread
    counts = tap.close(60)
    whole = time.process_time() - process
    if counts.kept != len(told):
        raise SystemExit(f"not every call was kept: {counts}")
    return 1e6 * front / len(told), 1e6 * (whole - front) / len(told)


def main() -> None:
    """Print and keep."""
    told = calls()
    found: dict[str, list[tuple[float, float]]] = {"shapes": [], "shapes, and contents of a tenth": []}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            shapes = ShapeStore(place / "a", KEY, unit="token", source="a benchmark")
            found["shapes"].append(cost(told, [shapes]))
            both: list[Sink] = [
                ShapeStore(place / "b", KEY, unit="token", source="a benchmark"),
                ContentStore(place / "c", KEY, share=0.1, keep_s=3600),
            ]
            found["shapes, and contents of a tenth"].append(cost(told, both))
    mean = sum(call.prompt_tokens for call in told) / len(told)
    ceiling("0 µs: nothing recorded")
    rows = [[name, spread([f for f, _ in pairs], 1), spread([b for _, b in pairs], 0)] for name, pairs in found.items()]
    table(f"µs a call of {mean:.0f} prompt tokens, median [min, max]", ["kept", "front's thread", "tap's thread"], rows)
    finish("tap", {"calls": len(told), "prompt_tokens": mean, "front_and_tap_us": found})


if __name__ == "__main__":
    main()
