"""One call that a model served, as it ended: what a front tells a tap."""

from dataclasses import dataclass

from reforward.domain.workload import Sampling


@dataclass(frozen=True, kw_only=True)
class Call:
    """Facts of one call. `prompt` and `answer` pass through a tap; unless the operator opted in they are hashed and forgotten."""

    arrived_s: float
    """`time.monotonic()` when the request had arrived: a clock that nobody sets."""
    seconds: float
    """From arrival to the last byte of the answer, or to the failure."""
    prompt_tokens: int
    output_tokens: int
    """0 if it failed before the first token."""
    ttft_s: float | None = None
    """From arrival to the first token; None if there was none, or if the answer was not streamed."""
    sampling: Sampling | None = None
    status: int = 200
    """Of the HTTP answer; 499 if the client went away."""
    finish: str = ""
    """`stop`, `length`, ... as the answer said; empty if it did not."""
    estimated: bool = False
    """Token counts were not told by the server but estimated."""
    prompt: tuple[int, ...] | str = ()
    """Token ids where they are known, else the text."""
    answer: tuple[int, ...] | str = ()
