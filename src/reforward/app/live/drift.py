"""Whether recorded traffic is still what it was."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reforward.app.extras import need
from reforward.domain.errors import BadInput
from reforward.traffic.trace import read_trace

if TYPE_CHECKING:
    from reforward.traffic.drift import Looked

REFERENCE_WINDOWS = 8
"""Windows at the beginning of a trace that are the reference, if no other trace is."""


@dataclass(frozen=True, kw_only=True)
class Drifted:
    """Every window after the reference, and the first alarm."""

    reference: int
    """Requests of it."""
    window: int
    limits: tuple[tuple[str, float], ...]
    """What each quantity's index must exceed."""
    looks: tuple["Looked", ...]
    alarm: "Looked | None"
    left_over: int
    """Requests at the end that fill no window."""


def drift(file: Path, reference: Path | None, window: int) -> Drifted:
    """Compare a trace with another, or its later part with its beginning."""
    need("drift")
    from reforward.traffic.drift import Drift

    requests = read_trace(file).requests
    if reference is None:
        known, requests = requests[: REFERENCE_WINDOWS * window], requests[REFERENCE_WINDOWS * window :]
    else:
        known = read_trace(reference).requests
    found = Drift(known, window)
    looks = tuple(found.watch(requests))
    if not looks:
        raise BadInput(f"{len(requests)} requests after the reference fill no window of {window}")
    return Drifted(
        reference=len(known),
        window=window,
        limits=tuple(found.limits.items()),
        looks=looks,
        alarm=next((looked for looked in looks if looked.alarms), None),
        left_over=len(requests) - window * len(looks),
    )
