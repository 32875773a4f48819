"""Feed the controller what is nearly right, for as long as one likes.

    PYTHONPATH=tests python -m fuzz.run [INPUTS] [SEED]        100,000 inputs take some minutes

Prints a line for each target, and one JSON line last. An input that crashes is named by its number, which repeats it.
"""

import json
import random
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.targets import Targets

SHARES = {
    "messages": 30, "frames": 16, "answers": 4, "trees": 6, "candidates": 10, "sources": 8, "rows": 10, "checkpoints": 8,
    "traces": 8,
}  # fmt: skip
"""Of a hundred inputs; the dear ones get fewer."""


@dataclass
class Count:
    """What became of a target's inputs."""

    taken: int = 0
    refused: int = 0
    crashes: list[str] = field(default_factory=list[str])
    slowest_s: float = 0.0


def fuzz(inputs: int, seed: int) -> dict[str, Count]:
    """Feed so many inputs; the same seed gives the same ones."""
    counts = {name: Count() for name in SHARES}
    order = [name for name, share in SHARES.items() for _ in range(share)]
    with tempfile.TemporaryDirectory() as folder:
        targets = Targets(Path(folder)).all()
        for number in range(inputs):
            name = order[number * 37 % len(order)]
            feed, may_raise = targets[name]
            count, begun = counts[name], time.monotonic()
            try:
                feed(random.Random(f"{seed}/{number}"))
                count.taken += 1
            except may_raise:
                count.refused += 1
            except Exception:  # noqa: BLE001 - what we look for
                count.crashes.append(f"input {number} of seed {seed}: {traceback.format_exc()[-1500:]}")
            count.slowest_s = max(count.slowest_s, time.monotonic() - begun)
    return counts


def main() -> None:
    """Run, print, and end with 1 if anything crashed."""
    inputs, seed = (int(word) for word in [*sys.argv[1:], *("100000", "0")[len(sys.argv) - 1 :]])
    begun = time.monotonic()
    counts = fuzz(inputs, seed)
    for name, count in counts.items():
        ends = f"taken {count.taken:7,}  refused {count.refused:7,}  crashes {len(count.crashes):3}"
        print(f"{name:12} {ends}  slowest {count.slowest_s:.2f} s")
        print("".join(count.crashes[:3]), end="")
    crashes = sum(len(count.crashes) for count in counts.values())
    seconds = round(time.monotonic() - begun, 1)
    print(json.dumps({"fuzz": {"inputs": inputs, "seed": seed, "crashes": crashes, "seconds": seconds}}))
    sys.exit(1 if crashes else 0)


if __name__ == "__main__":
    main()
