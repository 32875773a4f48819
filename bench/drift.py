"""How often drift is seen where there is none, and how soon where there is: one client that joins or stops.

Pass the two files of the Azure LLM inference trace 2023 (github.com/Azure/AzurePublicDataset); without them, the packaged slices of
2,000 rows each, which hold too little for windows of 500. Every stretch is watched as a service would: after an alarm the reference
is taken anew.
"""

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from card import ceiling, finish, table
from reforward.domain.workload import Request
from reforward.traffic.drift import Drift
from reforward.traffic.packaged import CODE, PATH
from reforward.traffic.shift import joins, leaves
from reforward.traffic.trace import read_trace

SEEDS, STARTS = 10, 5
SHARES = (0.1, 0.2, 0.3, 0.5, 0.7)
Traffic = Sequence[Request]


def alarms(traffic: Traffic, window: int, windows: int) -> list[int]:
    """Places of alarms, in requests, when each is followed by a new reference."""
    found: list[int] = []
    begin, size = 0, window * windows
    while begin + size + window <= len(traffic):
        looks = Drift(traffic[begin : begin + size], window).watch(traffic[begin + size :])
        first = next((looked.requests for looked in looks if looked.alarms), None)
        if first is None:
            break
        begin += size + first
        found.append(begin)
    return found


def shuffled(traffic: Traffic, run: int, seed: int) -> list[Request]:
    """Runs of so many requests stay together: unrest from minute to minute stays, and no trend is left."""
    pieces = [traffic[start : start + run] for start in range(0, len(traffic), run)]
    random.Random(seed).shuffle(pieces)
    return [request for piece in pieces for request in piece]


def delays(
    chat: Traffic, client: Traffic, share: float, window: int, windows: int, *, stops: bool
) -> Iterator[int | None]:
    """Requests from the shift to the alarm, from several starts; None where none came."""
    size, most = window * windows, window * 14
    for start in range(0, STARTS * window, window):
        base = chat[start : start + size + most]
        if len(base) < size + 4 * window or (stops and len(client) < size * share / (1 - share) + 1):
            return
        at = base[size].arrival_s
        mixed = leaves(base, client, at, share) if stops else joins(base, client, at, share)
        before = sum(request.arrival_s < at for request in mixed)
        looks = Drift(mixed[:before], window).watch(mixed[before:])
        yield next((looked.requests for looked in looks if looked.alarms), None)


def said(found: Sequence[int | None]) -> str:
    """`median [most] of n, m missed`."""
    if not found:
        return "too few requests"
    seen = [delay for delay in found if delay is not None]
    missed = f", {len(found) - len(seen)} missed" if len(seen) < len(found) else ""
    return (
        f"{statistics.median(seen):.0f} [{max(seen)}] of {len(found)}{missed}" if seen else f"all {len(found)} missed"
    )


def main() -> None:
    """Print and keep."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--conv", type=Path, default=PATH)
    options.add_argument("--code", type=Path, default=CODE)
    chosen = options.parse_args()
    chat, code = (read_trace(path).requests for path in (chosen.conv, chosen.code))
    even = [replace(request, arrival_s=float(place)) for place, request in enumerate(code)]
    ceiling("an alarm needs three windows in a row: 600 requests at 200 a window, 1,500 at 500")
    figures: dict[str, Any] = {"requests": {"conversation": len(chat), "code": len(code)}}
    quiet: list[list[str]] = []
    shifts: list[list[str]] = []
    for window, windows in ((200, 4), (200, 8), (500, 4), (500, 8)):
        if window * (windows + 4) > len(chat):
            continue
        key = f"{window} x {windows}"
        order = {name: alarms(traffic, window, windows) for name, traffic in (("conversation", chat), ("code", code))}
        runs = {
            run: [len(alarms(shuffled(chat, run, seed), window, windows)) for seed in range(SEEDS)]
            for run in (1, 20, 100, window)
        }
        quiet.append(
            [key, *(str(sum(counts)) for counts in runs.values()), *(str(places) for places in order.values())]
        )
        figures[key] = {"shuffled": runs, "real_order": order}
        for name, client, stops in (
            ("joins", code, False),
            ("joins evenly", even, False),
            ("stops", code, True),
            ("stops, even", even, True),
        ):
            found = {share: list(delays(chat, client, share, window, windows, stops=stops)) for share in SHARES}
            shifts.append([key, name, *map(said, found.values())])
            figures[key][name] = found
    header = [
        "window x reference",
        *(f"{SEEDS} hours, runs of {run}" for run in ("1", "20", "100", "a window")),
        "conversation as it was",
        "code as it was",
    ]
    table("alarms without a shift (shuffled), and in the order of the trace", header, quiet)
    table(
        "requests from shift to alarm: median [most] of starts",
        ["window x reference", "the code client", *(f"share {share:g}" for share in SHARES)],
        shifts,
    )
    finish("drift", figures)


if __name__ == "__main__":
    main()
