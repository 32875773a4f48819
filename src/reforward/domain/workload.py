"""What is asked of a model: `Request`, and the `Workload` distilled from many of them."""

from dataclasses import dataclass, field
from typing import ClassVar

from reforward.domain.errors import BadInput
from reforward.domain.record import LATER, Record


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the tokens of a call were asked for. None: the client did not say.

    Seeds, stop strings, grammars and tools are counted, not kept.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    n: int = 1
    stream: bool = False
    seeded: bool = False
    logprobs: bool = False
    stops: int = 0
    """Number of stop strings."""
    constrained: bool = False
    """A schema, a grammar or a choice restricted the output."""
    tools: int = 0
    """Number of tools offered."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One observed call as shape and timing; never its content."""

    arrival_s: float
    """Seconds since the first request of the window."""
    prompt_tokens: int
    output_tokens: int
    reused_tokens: int = field(default=0, metadata=LATER)
    """Leading prompt tokens that earlier requests of the window had too: what an unbounded prefix cache would hold."""
    in_flight: int = field(default=0, metadata=LATER)
    """Requests in service when this one arrived, itself included; 0: not known."""
    sampling: Sampling | None = field(default=None, metadata=LATER)
    blocks: tuple[int, ...] = field(default=(), metadata=LATER)
    """Keyed hashes of the prompt's prefixes, one for each started block of tokens: equal means the same prompt up to there."""

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1 or self.arrival_s < 0:
            raise BadInput(f"a request needs at least one prompt and one output token and a time >= 0, got {self!r}")
        if not 0 <= self.reused_tokens <= self.prompt_tokens or self.in_flight < 0:
            raise BadInput(f"a request reuses at most its prompt and has no negative company, got {self!r}")


@dataclass(frozen=True, kw_only=True)
class Workload(Record):
    """A fixed, replayable, weighted sample of requests; for a module subject, a number of drawn inputs.

    Token content is not in it: the client draws it per measurement from a nonce.
    """

    tag: ClassVar[str] = "workload"

    name: str
    source: str
    """Where the traffic came from, with its citation and licence."""
    requests: tuple[Request, ...] = ()
    """In arrival order; empty for a module subject."""
    weights: tuple[float, ...] = ()
    """How many observed requests each sampled one stands for; same length as `requests`."""
    length_scale: float = 1.0
    """Observed token counts were multiplied by this before they were stored here (1 = untouched)."""
    concurrency: int = 1
    """Requests in flight at once during replay."""
    inputs: int = 0
    """Module subjects: how many fresh inputs one pass draws; 0 for a language model."""

    def __post_init__(self) -> None:
        if bool(self.requests) == bool(self.inputs):
            raise BadInput("a workload holds either requests (lm) or a number of inputs (module), not both or neither")
        if len(self.weights) != len(self.requests):
            raise BadInput(f"{len(self.requests)} requests need as many weights, got {len(self.weights)}")

    @property
    def words(self) -> str:
        """One line for people."""
        if self.inputs:
            return f"{self.inputs} fresh inputs a pass"
        prompt = sum(request.prompt_tokens for request in self.requests)
        scale = "" if self.length_scale == 1 else f", token counts scaled by {self.length_scale:g}"
        return (
            f"{len(self.requests)} requests distilled from {self.source}{scale}: {prompt} prompt and "
            f"{self.output_tokens} output tokens a pass, {self.concurrency} in flight"
        )

    @property
    def output_tokens(self) -> int:
        """Tokens that one pass produces."""
        return sum(request.output_tokens for request in self.requests)

    @property
    def longest(self) -> int:
        """Positions that the longest request needs: its prompt and its output."""
        return max(request.prompt_tokens + request.output_tokens for request in self.requests)
