"""Which layer stopped a candidate, read off its verdict and, for a failure, off the stage and the words of the reason."""

from typing import Literal

from reforward.domain.measurement import Failed, Measurement
from reforward.domain.verdict import Reason, Verdict

Layer = Literal["build", "load", "sandbox", "wire", "run", "honesty", "numerics", "memory", "gain", "-"]
"""`run`: the candidate's own code raised, ended or fell silent. `-`: nothing stopped it."""

BY_REASON: dict[Reason, Layer] = {
    "identical": "honesty",
    "engagement": "honesty",
    "shape": "honesty",
    "non-finite": "honesty",
    "token-mismatch": "honesty",
    "impossible": "honesty",
    "void": "numerics",
    "numerics": "numerics",
    "memory": "memory",
    "slower": "gain",
    "no-gain": "gain",
    "undecided": "gain",
    "disturbed": "gain",
    "faster": "-",
    "promising": "-",
}
_WIRE = ("talks nonsense", "the worker answered", "the worker sent")
_SANDBOX = (
    "PermissionError", "SIGSEGV", "SIGBUS", "SIGSYS", "over its memory limit", "Read-only file system", "Operation not permitted",
    "Permission denied", "File too large", "no way out",
)  # fmt: skip


def layer(facts: Measurement | Failed, verdict: Verdict) -> Layer:
    """The layer that decided. A case whose door is shut says `no way out`: that is the sandbox's doing."""
    if isinstance(facts, Measurement):
        return BY_REASON[verdict.reason]
    if any(words in facts.reason for words in _WIRE):
        return "wire"
    if any(words in facts.reason for words in _SANDBOX):
        return "sandbox"
    if facts.stage in ("build", "pack"):
        return "build"
    return "load" if facts.stage in ("source", "load") else "run"
