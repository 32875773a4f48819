"""The whole story, unattended: a server improves itself under chat traffic, a code client joins, and it looks again.

    python bench/story.py [--subject smollm2] [--minutes 28] [--rate 1.5]

Open loop. Chats have the arrivals and lengths of the packaged Azure slice, scaled by a printed factor; from the first end of the
search on, as many requests again come from a client that completes code: long prompts, short answers. Prints the server's own
timeline, and at the end how requests were answered in each part.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import card
from load import Heard, Server, azure, load
from reforward.domain.workload import Request

LENGTH = 512
SETTLE_S = 60.0
"""Traffic before and after a search that its figures are taken from, at least."""


def code(scale: float) -> list[Request]:
    """Completions: eight times the prompt of a mean chat, a tenth of its answer, one a second."""
    chats = azure(scale, LENGTH - 1)
    prompt = statistics.mean(one.prompt_tokens for one in chats)
    output = statistics.mean(one.output_tokens for one in chats)
    return [
        Request(
            arrival_s=float(number),
            prompt_tokens=min(LENGTH // 2, round(prompt * (6 + number % 5))),
            output_tokens=max(2, round(output * (0.05 + 0.02 * (number % 6)))),
        )
        for number in range(60)
    ]


async def story(asked: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Returns how each part was answered, and when what happened."""
    options = ["--window", "200", "--windows", "4", "--canary", str(asked.canary), "--min-gain", "0.05"]
    options += ["--candidates", str(asked.candidates)]
    server = Server(asked.subject, home, *options, verb="up")
    begun = time.monotonic()
    marks: dict[str, float] = {}
    try:
        await server.ready()
        async with AsyncExitStack() as stack:
            chats = await stack.enter_async_context(load(server, azure(asked.scale, LENGTH - 1), asked.rate, seed=1))
            await _until(server, "searching", begun, asked.minutes)
            marks["search begins"] = time.monotonic()
            await _until(server, "watching", begun, asked.minutes)
            marks["search ends"] = time.monotonic()
            await asyncio.sleep(SETTLE_S)
            marks["code client joins"] = time.monotonic()
            codes = await stack.enter_async_context(load(server, code(asked.scale), asked.rate, seed=2))
            if await _until(server, "searching", begun, asked.minutes):
                marks["shift is told"] = time.monotonic()
                if await _until(server, "watching", begun, asked.minutes):
                    marks["second search ends"] = time.monotonic()
                    await asyncio.sleep(SETTLE_S)
        facts = (await server.call("GET", "/admin/status"))[1]
        parts = {
            "chat, before": [h for h in chats if h.sent_at < marks["search begins"]],
            "chat, after": [h for h in chats if marks["search ends"] < h.sent_at < marks["code client joins"]],
            "chat, beside code": [h for h in chats if h.sent_at > marks["code client joins"]],
            "code": list(codes),
        }
        both = [*chats, *codes]
        return {
            "serves": facts["serves"]["candidate"][-10:], "requests": len(both), "lost": sum(h.lost for h in both),
            "workers_lost": facts["workers_lost"], "marks_s": {name: round(at - begun, 1) for name, at in marks.items()},
            "answers": {name: answered(part) for name, part in parts.items()},
        }  # fmt: skip
    finally:
        server.stop()
        card.console.print(server.log.read_text(), markup=False, soft_wrap=True)


def answered(part: list[Heard]) -> dict[str, float]:
    """Medians of one part: seconds to the first token, tokens a second of one request after it."""
    good = [h for h in part if h.at]
    rates = [(len(h.at) - 1) / (h.at[-1] - h.at[0]) for h in good if len(h.at) > 2 and h.at[-1] > h.at[0]]
    return {
        "requests": len(part),
        "ttft_p50_s": round(statistics.median(h.at[0] - h.sent_at for h in good), 3) if good else 0.0,
        "tok_s_p50": round(statistics.median(rates), 1) if rates else 0.0,
    }


async def _until(server: Server, state: str, begun: float, minutes: float) -> bool:
    """Until the search is in a state; False if the time is over before."""
    while time.monotonic() - begun < 60 * minutes:
        doing = (await server.call("GET", "/admin/status"))[1]["search"]
        if doing.startswith(state):
            return True
        if doing.startswith("ended"):
            raise SystemExit(doing)
        await asyncio.sleep(0.5)
    return False


def main() -> None:
    """Print the timeline, a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", default="smollm2")
    parser.add_argument("--minutes", type=float, default=28.0)
    parser.add_argument("--rate", type=float, default=1.5)
    parser.add_argument("--scale", type=float, default=0.03)
    parser.add_argument("--canary", type=int, default=20)
    parser.add_argument("--candidates", type=int, default=4, help="screened in each search")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        found = asyncio.run(story(asked, Path(home)))
    rows = [[name, *map(str, part.values())] for name, part in found["answers"].items()]
    card.table("answers", ["part", "requests", "TTFT s, median", "tok/s of a request, median"], rows)
    settings = {key: getattr(asked, key) for key in ("rate", "scale", "canary", "candidates")}
    card.finish("story", found | settings | {"subject": Path(asked.subject).name})


if __name__ == "__main__":
    main()
