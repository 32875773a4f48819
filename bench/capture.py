"""What `reforward capture` adds to a request, paired with the direct path, at the highest rate that the generator can hold.

Requests leave open loop at a fixed rate, in pairs, one straight to the server and one through the proxy, in random order. A rate
counts if 99 % of the requests left less than a millisecond late: beyond it, the client is measured, not the proxy.
"""

import argparse
import asyncio
import json
import os
import random
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from card import ceiling, console, finish, table

TOKENS, PAUSE_S = 8, 0.005
PROMPT = "x" * 2000
RATES = (50, 100, 200, 400, 600, 800, 1000, 1200, 1600)
MOST_LAG_S = 0.001
GOAL_MS = (1.0, 5.0)
"""Median and 99th percentile of what may be added."""
BODY = json.dumps({"model": "m", "prompt": PROMPT, "max_tokens": TOKENS, "stream": True}).encode()
REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(BODY), BODY,
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """Seconds: how late it left, from leaving to the first token, and to the end."""

    lag: float
    first: float
    whole: float


class Path_:
    """Connections to one port, used again."""

    def __init__(self, port: int) -> None:
        self.port, self.idle = port, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()

    async def ask(self, due: float) -> Seen:
        """One request that should leave at `due`."""
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        left = time.perf_counter()
        writer.write(REQUEST)
        first, tail = 0.0, b""
        while not tail.endswith(b"0\r\n\r\n"):
            data = await reader.read(65536)
            if not data:
                raise SystemExit(f"port {self.port} broke off: {tail!r}")
            if not first and b"data:" in data:
                first = time.perf_counter() - left
            tail = (tail + data)[-64:]
        self.idle.append((reader, writer))
        return Seen(left - due, first, time.perf_counter() - left)


async def at_rate(paths: Sequence[Path_], rate: float, seconds: float, seed: int) -> list[tuple[Seen, ...]]:
    """Pairs in the order of `paths`, `rate` requests a second in all."""
    draw = random.Random(seed)
    begun, tasks = time.perf_counter() + 0.05, list[list[asyncio.Task[Seen]]]()
    for number in range(int(rate * seconds) // 2):
        order = draw.sample(range(2), 2)
        pair: dict[int, asyncio.Task[Seen]] = {}
        for place, path in enumerate(order):
            due = begun + (2 * number + place) / rate
            await asyncio.sleep(due - time.perf_counter())
            pair[path] = asyncio.create_task(paths[path].ask(due))
        tasks.append([pair[0], pair[1]])
    return [tuple([await task for task in pair]) for pair in tasks]


def figures(rate: float, pairs: Sequence[tuple[Seen, ...]]) -> dict[str, float]:
    """Milliseconds."""
    direct, proxied = (np.array([(p[i].first, p[i].whole) for p in pairs]) * 1000 for i in (0, 1))
    added = proxied - direct
    found = {"rate": rate, "pairs": len(pairs), "lag_p99_ms": _at([s.lag * 1000 for p in pairs for s in p], 99)}
    for column, name in enumerate(("first_token", "whole")):
        found |= {f"{name}_added_p50_ms": _at(added[:, column], 50), f"{name}_added_p99_ms": _at(added[:, column], 99)}
        found |= {
            f"{name}_p{q}_{arm}_ms": _at(values[:, column], q)
            for q in (50, 99)
            for arm, values in (("direct", direct), ("proxy", proxied))
        }
    return found


def _at(values: Sequence[float] | np.ndarray, percent: int) -> float:
    return round(float(np.percentile(values, percent)), 3)


def started(stack: ExitStack, command: Sequence[str], **around: str) -> tuple[subprocess.Popen[str], int]:
    """A program, and the port at the end of what it prints first."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **around})  # noqa: TID251
    stack.callback(process.wait)
    stack.callback(process.terminate)
    assert process.stdout is not None
    line = process.stdout.readline().split("/v1")[0]
    return process, int(line.rsplit(":", 1)[-1])


def measure(seconds: float) -> tuple[list[dict[str, float]], str]:
    """Figures of every rate, and what the proxy said at the end."""
    here = Path(__file__).parent
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        _, server = started(stack, [sys.executable, str(here / "upstream.py"), str(TOKENS), str(PAUSE_S)])
        command = [
            sys.executable,
            "-m",
            "reforward.cli.main",
            "capture",
            "--upstream",
            f"http://127.0.0.1:{server}",
            "--port",
            "0",
        ]
        proxy, port = started(stack, command, REFORWARD_HOME=home)
        loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
        rows: list[dict[str, float]] = []
        paths = [Path_(server), Path_(port)]
        loop.run_until_complete(at_rate(paths, 50, 1.0, 0))
        for rate in RATES:
            rows.append(figures(rate, loop.run_until_complete(at_rate(paths, rate, seconds, rate))))
            if rows[-1]["lag_p99_ms"] > 1000 * MOST_LAG_S:
                break
        proxy.terminate()
        assert proxy.stdout is not None
        said = proxy.stdout.read().strip()
        loop.close()
    return rows, said


def main() -> None:
    """Print and keep."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=8.0, help="of each rate")
    rows, said = measure(options.parse_args().seconds)
    ceiling("0 ms: the direct path")
    names = (
        "rate",
        "lag_p99_ms",
        "first_token_added_p50_ms",
        "first_token_added_p99_ms",
        "whole_added_p50_ms",
        "whole_added_p99_ms",
    )
    table("added by the proxy, paired", names, [[f"{row[name]:g}" for name in names] for row in rows])
    console.print(said)
    held = [row for row in rows if row["lag_p99_ms"] <= 1000 * MOST_LAG_S]
    best = held[-1] if held else None
    if best:
        median, tail = best["first_token_added_p50_ms"], best["first_token_added_p99_ms"]
        good = median <= GOAL_MS[0] and tail <= GOAL_MS[1]
        console.print(
            f"at {best['rate']:g} requests a second: +{median:.2f} ms median, +{tail:.2f} ms p99 to the first token; "
            f"goal {GOAL_MS[0]:g} and {GOAL_MS[1]:g}: {'reached' if good else 'missed'}"
        )
    else:
        console.print("the generator was late at every rate: the machine is busy, nothing can be said")
    finish("capture", {"tokens": TOKENS, "pause_s": PAUSE_S, "rates": rows, "at": best, "proxy": said})


if __name__ == "__main__":
    main()
