"""Time stamps that were rounded when a trace was recorded."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reforward.domain.workload import Request

COARSE = 2.0
"""Requests a distinct time stamp from which on stamps are taken for rounded, and requests are spread between them."""


def spread(requests: Sequence[Request], seed: int) -> tuple[list[Request], float]:
    """Requests with rounded times (Mooncake's: to 3 s) evenly at random up to the next stamp, and how coarse they were.

    Played as they are, they would be bursts that nobody sent.
    """
    stamps = sorted({request.arrival_s for request in requests})
    if len(requests) < COARSE * len(stamps) or len(stamps) < 3:
        return list(requests), 0.0
    step = float(np.median(np.diff(stamps)))
    draw = random.Random(seed)
    moved = [replace(request, arrival_s=request.arrival_s + draw.random() * step) for request in requests]
    return sorted(moved, key=lambda request: request.arrival_s), step
