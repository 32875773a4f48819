"""Traffic as arrays: when requests arrive and how long they are. Distributions, not means: queues are made of the tail."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from reforward.domain.errors import BadInput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
P90 = 1.2815515655446004
"""Standard deviations from the median to the 90th percentile of a normal distribution."""
FIXED = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Log-normal token counts by their median and 90th percentile."""

    p50: float
    p90: float
    most: int

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """[count] token counts."""
        sigma = np.log(self.p90 / self.p50) / P90
        drawn = self.p50 * np.exp(sigma * random.standard_normal(count))
        return np.clip(np.rint(drawn), 1, self.most).astype(np.int64)


PRESETS: dict[str, tuple[Lengths, Lengths, str]] = {
    "code": (Lengths(p50=1469, p90=5188, most=7437), Lengths(p50=13, p90=55, most=1899), "Azure LLM trace 2023, code"),
    "long": (
        Lengths(p50=6909, p90=27367, most=126195),
        Lengths(p50=350, p90=597, most=2000),
        "Mooncake conversation trace (Qin et al., FAST 2025)",
    ),
    "reasoning": (
        Lengths(p50=204, p90=1301, most=24673),
        Lengths(p50=878, p90=3834, most=12975),
        "DeepSeek-R1 clients of ServeGen (Xiang et al., 2025)",
    ),
    "agentic": (
        Lengths(p50=1954, p90=13700, most=74000),
        Lengths(p50=300, p90=1050, most=3508),
        "new tokens of a turn of agentic coding; contexts that are kept are not counted",
    ),
}
"""Prompt and output lengths by the percentiles of a published trace, and which."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Requests in order of arrival: seconds, prompt tokens, output tokens; [requests] each."""

    arrival: Floats
    prompt: Ints
    output: Ints
    source: str

    def __post_init__(self) -> None:
        if not len(self.arrival):
            raise BadInput(f"the traffic of {self.source} has no requests; give a trace with at least one row")
        for name, tokens in (("prompt", self.prompt), ("output", self.output)):
            empty = int((tokens < 1).sum())
            if empty:
                raise BadInput(
                    f"{empty} of {len(tokens)} requests of {self.source} have no {name} tokens; "
                    "they are failed calls: leave their rows out"
                )

    @classmethod
    def fixed(cls, prompt: int, output: int, count: int = 1024) -> Self:
        """Requests of one length, as a Poisson process of one a second."""
        random = np.random.default_rng(0)
        return cls(
            arrival=np.cumsum(random.exponential(size=count)),
            prompt=np.full(count, prompt),
            output=np.full(count, output),
            source=f"{prompt} prompt and {output} output tokens, Poisson arrivals",
        )

    @classmethod
    def preset(cls, name: str, count: int = 4096) -> Self:
        """A named mix of lengths, or `PROMPT/OUTPUT` tokens; arrivals are a Poisson process of one a second."""
        lengths = FIXED.fullmatch(name)
        if lengths:
            return cls.fixed(int(lengths[1]), int(lengths[2]))
        if name not in PRESETS:
            raise BadInput(
                f"there is no traffic {name!r}: give a trace file, PROMPT/OUTPUT tokens such as 1024/256, "
                f"or one of {', '.join(PRESETS)}"
            )
        prompt, output, about = PRESETS[name]
        random = np.random.default_rng(0)
        return cls(
            arrival=np.cumsum(random.exponential(size=count)),
            prompt=prompt.draw(count, random),
            output=output.draw(count, random),
            source=f"{name} ({about}; log-normal lengths, Poisson arrivals)",
        )

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def rate(self) -> float:
        """Arrivals a second; `BadInput` if all arrive at once."""
        span = float(self.arrival[-1] - self.arrival[0])
        if span <= 0:
            raise BadInput(
                f"all {len(self)} requests of {self.source} arrive at the same moment, so they have no pattern in time; "
                "give a trace that takes some time, or PROMPT/OUTPUT tokens such as 1024/256"
            )
        return (len(self) - 1) / span

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output."""
        return int((self.prompt + self.output).max())

    def at(self, rate: float, count: int, *, share: int = 1, first: int = 0) -> "Traffic":
        """`count` requests from the `first` on, as one of `share` replicas sees them in turn, at `rate` a second.

        The pattern of arrivals is the traffic's own, stretched in time; it begins anew where it ends.
        """
        if rate <= 0 or not np.isfinite(rate):
            raise BadInput(f"a rate must be above 0, got {rate:g}; give requests a second, such as 12/s")
        places = first + share * np.arange(count)
        turns, rows = np.divmod(places, len(self))
        seconds = (self.arrival[rows] - self.arrival[0] + turns * self._round()) * (self.rate / share / rate)
        return Traffic(
            arrival=seconds - seconds[0], prompt=self.prompt[rows], output=self.output[rows], source=self.source
        )

    def under_way(self, count: int, then: "Traffic") -> "Traffic":
        """`count` requests that are somewhere in their answers when `then` begins, and `then`.

        A long answer is met more often than a short one, and at any place of it: their prompts hold what is answered.
        """
        random = np.random.default_rng(0)
        rows = random.choice(len(self), size=count, p=self.output / self.output.sum())
        done = (random.random(count) * self.output[rows]).astype(np.int64)
        return Traffic(
            arrival=np.concatenate([np.full(count, then.arrival[0]), then.arrival]),
            prompt=np.concatenate([self.prompt[rows] + done, then.prompt]),
            output=np.concatenate([self.output[rows] - done, then.output]),
            source=self.source,
        )

    def _round(self) -> float:
        """Seconds from a request to itself in the next round."""
        return len(self) / self.rate


def parse_rate(text: str) -> float:
    """`12/s` or `720/m` in requests a second; `BadInput` without a unit, or not above 0."""
    found = re.fullmatch(r"\s*([-+]?[\d.]+(?:e[-+]?\d+)?)\s*(?:/|per )?\s*(s|sec|m|min|h)?\s*", text)
    try:
        value = float(found[1]) if found else None
    except ValueError:
        value = None
    if found is None or value is None or found[2] is None:
        raise BadInput(
            f"the rate {text!r} needs a number and a unit; give requests a second or minute, such as 12/s or 90/m"
        )
    if not 0 < value < float("inf"):
        raise BadInput(f"the rate {text!r} must be above 0; give requests a second, such as 12/s")
    return value / {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}[found[2]]
