"""`kill -9` of the worker in service, at random moments under load: what was lost, and how long the streams stood still.

python bench/crash_soak.py --kills 200
"""

import argparse
import asyncio
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import card
from load import Heard, Server, azure, load, quantile

LENGTH = 512


async def soak(asked: argparse.Namespace, home: Path) -> dict[str, Any]:
    """One server, one load, all kills."""
    server = Server(asked.subject, home, "--slots", "4", "--length", str(LENGTH), "--queue", "256")
    draw, kills = random.Random(2), list[float]()
    try:
        await server.ready()
        async with load(server, azure(asked.scale, LENGTH - 1), asked.rate, seed=3) as heard:
            while len(kills) < asked.kills:
                await asyncio.sleep(draw.uniform(0.5, 2 * asked.every - 0.5))
                status, facts = await server.call("GET", "/admin/status")
                main = facts["lanes"].get("main") if status == 200 else None
                if main is not None and facts["in_service"]:
                    os.kill(main["pid"], signal.SIGKILL)
                    kills.append(time.monotonic())
        facts = (await server.call("GET", "/admin/status"))[1]
        return figures(heard, kills, facts)
    finally:
        server.stop()


def figures(heard: list[Heard], kills: list[float], facts: dict[str, Any]) -> dict[str, Any]:
    """Recovery: from a kill to the next token that any stream is told after it."""
    told = sorted(at for one in heard for at in one.at)
    recoveries = [next((at - kill for at in told if at > kill), None) for kill in kills]
    known = [seconds for seconds in recoveries if seconds is not None]
    gaps = [gap for one in heard for gap in one.gaps]
    return {
        "kills": len(kills), "requests": len(heard), "lost": sum(one.lost for one in heard),
        "duplicated": sum(len(one.tokens) > one.wanted for one in heard), "tokens": sum(len(one.tokens) for one in heard),
        "errors": sorted({one.error or one.finished or str(one.status) for one in heard if one.lost}),
        "recovery_p50_s": quantile(known, 0.5), "recovery_p99_s": quantile(known, 0.99), "recovery_max_s": max(known),
        "itl_p50_s": quantile(gaps, 0.5), "itl_p99_s": quantile(gaps, 0.99),
        "resumed": facts["resumed"], "workers_lost": facts["workers_lost"],
    }  # fmt: skip


def main() -> None:
    """Print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", default="smollm2")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--every", type=float, default=3.0, help="mean seconds between two kills")
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--scale", type=float, default=0.05)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        found = asyncio.run(soak(asked, Path(home)))
    card.table("crash soak", ["figure", "value"], [[key, str(value)] for key, value in found.items()])
    settings = {key: getattr(asked, key) for key in ("every", "rate", "scale")}
    card.finish("crash_soak", found | settings | {"subject": Path(asked.subject).name})


if __name__ == "__main__":
    main()
