"""Hot swaps under continuous load: what was lost, and what a swap costs the streams that were open meanwhile.

    python bench/swap_soak.py --swaps 1000 [--canary 20] [--exact]

Open loop, arrivals of the packaged Azure slice. The forwards swapped are the stock and copies of it (another candidate, the same
state), so that answers can be compared. With --exact the same load is played again without swaps and greedy answers compared.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import card
from load import Heard, Server, azure, load, quantile
from reforward.app.config import load_config
from reforward.app.subjects import load_subject
from reforward.ledger.store import SqlLedger

LENGTH = 512
QUIET_S = 60.0
AFTER_S = 0.25
"""A gap belongs to a swap if it ends between its decision and so long after its end."""


async def soak(asked: argparse.Namespace, home: Path) -> dict[str, Any]:
    """One server, one load, all swaps."""
    copies = _copies(asked.subject, home)
    options = ["--slots", "4", "--length", str(LENGTH), "--queue", "256", *(["--exact"] if asked.exact else [])]
    server = Server(asked.subject, home, *options)
    try:
        await server.ready()
        requests = azure(asked.scale, LENGTH - 1)
        prompt, output = (
            statistics.median(getattr(r, f"{kind}_tokens") for r in requests) for kind in ("prompt", "output")
        )
        card.ceiling(
            f"token counts scaled by {asked.scale:g}, arrivals stretched to {asked.rate:g} a second; median request: "
            f"{prompt:g} + {output:g} tokens"
        )
        windows: list[tuple[float, float]] = []
        ends: dict[str, int] = {}
        async with load(server, requests, asked.rate, seed=1) as heard:
            await asyncio.sleep(QUIET_S)
            for number in range(asked.swaps):
                begun = time.monotonic()
                body = {"candidate": copies[number % 2], "canary": bool(asked.canary), "requests": asked.canary or 20}
                status, told = await server.call("POST", "/admin/deploy", body)
                assert status == 200, told
                word = told["ended"].partition(":")[0]
                ends[word] = ends.get(word, 0) + 1
                windows.append((begun, time.monotonic()))
                await asyncio.sleep(asked.pause)
            last = time.monotonic()
            await asyncio.sleep(QUIET_S)
        facts = (await server.call("GET", "/admin/status"))[1]
        differ = await _differ(server, heard, asked) if asked.exact else None
        return figures(heard, windows, last, ends, facts, differ)
    finally:
        server.stop()


def figures(
    heard: list[Heard], windows: list[tuple[float, float]], last: float, ends: dict[str, int], facts: dict[str, Any],
    differ: int | None,
) -> dict[str, Any]:  # fmt: skip
    """What the issue asks for, and more."""
    first = windows[0][0]
    quiet = [g for h in heard for g, at in zip(h.gaps, h.at[1:], strict=True) if at < first or at > last + AFTER_S]
    during = [
        g for h in heard for g, at in zip(h.gaps, h.at[1:], strict=True)
        if any(begun <= at <= ended + AFTER_S for begun, ended in _near(windows, at))
    ]  # fmt: skip
    walls = [ended - begun for begun, ended in windows]
    return {
        "swaps": sum(ends.get(word, 0) for word in ("forced", "promoted")), "ends": ends, "requests": len(heard),
        "lost": sum(h.lost for h in heard), "duplicated": sum(len(h.tokens) > h.wanted for h in heard),
        "tokens": sum(len(h.tokens) for h in heard), "differ": differ,
        "itl_p99_quiet_s": quantile(quiet, 0.99), "itl_p99_swap_s": quantile(during, 0.99),
        "itl_p99_ratio": quantile(during, 0.99) / quantile(quiet, 0.99),
        "itl_p50_quiet_s": quantile(quiet, 0.5), "itl_p50_swap_s": quantile(during, 0.5), "itl_max_swap_s": max(during),
        "gaps_quiet": len(quiet), "gaps_swap": len(during),
        "swap_s_p50": quantile(walls, 0.5), "swap_s_p99": quantile(walls, 0.99),
        "request_s_p50": statistics.median(h.at[-1] - h.sent_at for h in heard if h.at),
        "handed_over": facts["handed_over"], "resumed": facts["resumed"], "workers_lost": facts["workers_lost"],
    }  # fmt: skip


def _near(windows: list[tuple[float, float]], at: float) -> list[tuple[float, float]]:
    """Those few that may hold `at`: windows are in order."""
    low, high = 0, len(windows)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if windows[middle][0] <= at else (low, middle)
    return windows[max(0, low - 2) : low]


async def _differ(server: Server, heard: list[Heard], asked: argparse.Namespace) -> int:
    """How many greedy answers are not those that the same prompts get when nothing is swapped."""
    requests = azure(asked.scale, LENGTH - 1)
    async with load(server, requests, asked.rate, seed=1) as again:
        while len(again) < len(heard):
            await asyncio.sleep(0.5)
    return sum(a.tokens != b.tokens for a, b in zip(heard, again, strict=False))


def _copies(subject: str, home: Path) -> list[str]:
    """Two candidates in the server's ledger that compute what the stock does."""
    config = load_config()
    stock = load_subject(subject, config).stock
    home.mkdir(parents=True, exist_ok=True)
    text = stock.text_of(stock.entry_file)
    made = [stock.with_files({stock.entry_file: f"{text}\n# copy {number}\n"}) for number in range(2)]
    SqlLedger(home / "ledger.db", home / "blobs").append(*made)
    return [one.id for one in made]


def main() -> None:
    """Print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", default="smollm2")
    parser.add_argument("--swaps", type=int, default=1000)
    parser.add_argument("--canary", type=int, default=0, help="requests of each canary; 0: forced")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--scale", type=float, default=0.05)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two swaps")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        found = asyncio.run(soak(asked, Path(home)))
    card.table("swap soak", ["figure", "value"], [[key, str(value)] for key, value in found.items()])
    settings = {key: getattr(asked, key) for key in ("subject", "canary", "exact", "rate", "scale", "pause")}
    card.finish("swap_soak", found | settings | {"subject": Path(asked.subject).name})


if __name__ == "__main__":
    main()
