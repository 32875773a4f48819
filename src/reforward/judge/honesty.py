"""Whether the numbers are about the candidate at all: structure, finite masks, tokens, engagement, memory, times."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reforward.domain.contract import Contract
from reforward.domain.measurement import Arm, Measurement, Output
from reforward.domain.verdict import Finding
from reforward.judge.arrays import Floats, Rows

FLOOR_SLACK = 0.9
"""A pass may be this much below the stated floor: bandwidth probes are not exact."""


def structure(outputs: Sequence[Output]) -> Finding:
    """Outputs whose type or shape is not the stock's, or whose bytes do not fill their shape."""
    wrong = [output for output in outputs if not _same_structure(output)]
    return Finding(check="shape and type", value=float(len(wrong)), limit=0.0, passed=not wrong)


def _same_structure(output: Output) -> bool:
    ours, theirs = output.candidate, output.stock
    return (ours.dtype, ours.shape, len(ours.data)) == (theirs.dtype, theirs.shape, len(theirs.data))


def finite_masks(rows: Sequence[Rows]) -> Finding:
    """Elements that are NaN or infinite where the stock's are not, or the other way round; infinities by sign."""
    wrong = sum(int(_mask(part).sum()) for part in rows)
    return Finding(check="non-finite elements", value=float(wrong), limit=0.0, passed=wrong == 0)


def _mask(part: Rows) -> NDArray[np.bool_]:
    if np.isfinite(part.candidate).all() and np.isfinite(part.stock).all():
        return np.zeros(0, np.bool_)
    nan = np.isnan(part.candidate) != np.isnan(part.stock)
    return nan | (_sign_of_infinity(part.candidate) != _sign_of_infinity(part.stock))


def _sign_of_infinity(values: Floats) -> Floats:
    return np.where(np.isinf(values), np.sign(values), np.float32(0))


def tokens(rows: Sequence[Rows]) -> Finding:
    """Tokens that are not the first maximum of the row that was delivered with them."""
    wrong = sum(int((part.candidate.argmax(axis=1) != np.array(part.tokens)).sum()) for part in rows if part.tokens)
    return Finding(check="token is first maximum of its row", value=float(wrong), limit=0.0, passed=wrong == 0)


def engagement(arm: Arm, name: str) -> Finding:
    """The source that ran is the source that was named."""
    same = arm.watermark == arm.candidate
    return Finding(check=f"{name} ran its own source", value=float(same), limit=1.0, passed=same)


def memory(measurement: Measurement, contract: Contract) -> Finding:
    """Bytes beyond the incumbent's and what allocators scatter, in units of the weights."""
    extra = measurement.candidate.memory.own - measurement.incumbent.memory.own
    share = max(0, extra - contract.memory_slack) / max(1, measurement.candidate.memory.weights)
    return Finding(
        check="memory beyond incumbent", value=share, limit=contract.extra_memory, passed=share <= contract.extra_memory
    )


def times(measurement: Measurement, floor_s: float) -> Finding:
    """The shortest candidate pass per decoded token, over the least that moving the bytes can take (0: not known).

    A module decodes nothing: its shortest pass must be longer than nothing.
    """
    ours = [sample for sample in measurement.samples if sample.arm == "candidate"]
    sane = all(math.isfinite(sample.seconds) and sample.seconds > 0 for sample in measurement.samples)
    each = [sample.decode_s / sample.decode_tokens for sample in ours if sample.decode_tokens]
    check = "seconds per decoded token" if each else "seconds a pass"
    least = min(each or [sample.seconds for sample in ours], default=math.inf)
    possible = sane and least >= floor_s * FLOOR_SLACK
    return Finding(check=check, value=min(least, 1e9), limit=floor_s * FLOOR_SLACK, passed=possible)
