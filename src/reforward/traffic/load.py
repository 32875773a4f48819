"""A trace played against a server, open loop: requests leave when they are due, whatever the answers do."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp
import numpy as np

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request
from reforward.traffic.endpoint import READ_S, Answer, Endpoint, ask, meet
from reforward.traffic.native import Header
from reforward.traffic.prompts import prompt_text
from reforward.traffic.stamps import spread


@dataclass(frozen=True, kw_only=True)
class Percentiles:
    """Of seconds."""

    p50: float
    p90: float
    p99: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a client saw. Names and formulas as in `vllm bench serve`: ITL are the gaps between pieces of text, pooled."""

    url: str
    model: str
    requests: int
    failed: int
    errors: tuple[str, ...]
    """The three commonest."""
    length_scale: float
    time_scale: float
    """The trace's time was divided by this."""
    spread_s: float
    """Time stamps were coarser than this and requests were spread evenly between them; 0 if not."""
    fixed_length: bool
    """The server was asked to ignore ends of text, so that outputs have the observed length."""
    seconds: float
    ttft_s: Percentiles | None
    itl_s: Percentiles | None
    e2e_s: Percentiles | None
    lag_s: Percentiles
    """From when a request was due to when it left: the generator's own delay."""
    slow_tail_tok_s: float | None
    """Tokens a second of a user at the slow tail: 1 / P90 of seconds per token after the first."""
    output_tok_s: float
    prompt_asked: int
    prompt_got: int
    """Tokens of prompts that were wanted, and as the server counted them; 0 if it does not count."""
    output_asked: int
    output_got: int


@dataclass(frozen=True, kw_only=True)
class Play:
    """What to play where."""

    requests: Sequence[Request]
    header: Header
    url: str
    model: str | None = None
    key: str = ""
    length_scale: float = 1.0
    time_scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.requests or not 0 < self.length_scale <= 1 or self.time_scale <= 0:
            raise BadInput(
                f"a replay needs requests, a length scale in (0, 1] and a time scale above 0, got {len(self.requests)}, "
                f"{self.length_scale:g} and {self.time_scale:g}"
            )


def play(plan: Play, done: Callable[[int], None] = lambda count: None) -> Replayed:
    """Blocks until the last answer is there; `done` is called with 1 for each."""
    return asyncio.run(_play(plan, done))


async def _play(plan: Play, done: Callable[[int], None]) -> Replayed:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=READ_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        endpoint = await meet(session, plan.url, plan.model, plan.key)
        requests, step = spread(plan.requests, plan.seed)
        due = [request.arrival_s / plan.time_scale for request in requests]
        scaled = [_asked(request, number, plan, endpoint) for number, request in enumerate(requests)]
        begun = time.perf_counter()
        tasks: list[asyncio.Task[Answer]] = []
        lags: list[float] = []
        for at, (prompt, output) in zip(due, scaled, strict=True):
            await asyncio.sleep(max(0.0, begun + at - time.perf_counter()))
            lags.append(time.perf_counter() - begun - at)
            tasks.append(asyncio.create_task(ask(session, endpoint, prompt, output)))
            tasks[-1].add_done_callback(lambda _: done(1))
        answers = await asyncio.gather(*tasks)
        seconds = time.perf_counter() - begun
    return _facts(plan, endpoint, answers, lags, seconds, step)


def _asked(request: Request, number: int, plan: Play, endpoint: Endpoint) -> tuple[str, int]:
    prompt = prompt_text(request, number, plan.header, plan.length_scale, endpoint.rate, plan.seed)
    return prompt, max(1, round(request.output_tokens * plan.length_scale))


def _facts(
    plan: Play, endpoint: Endpoint, answers: Sequence[Answer], lags: Sequence[float], seconds: float, step: float
) -> Replayed:
    good = [answer for answer in answers if not answer.error]
    errors = Counter(answer.error for answer in answers if answer.error)
    scaled = [(r.prompt_tokens * plan.length_scale, r.output_tokens * plan.length_scale) for r in plan.requests]
    pace = [
        (answer.seconds - answer.ttft_s) / (answer.output_tokens - 1)
        for answer in good
        if answer.ttft_s is not None and answer.output_tokens > 1
    ]
    return Replayed(
        url=endpoint.url,
        model=endpoint.model,
        requests=len(answers),
        failed=len(answers) - len(good),
        errors=tuple(f"{count} x {text}" for text, count in errors.most_common(3)),
        length_scale=plan.length_scale,
        time_scale=plan.time_scale,
        spread_s=step,
        fixed_length=endpoint.fixed_length,
        seconds=seconds,
        ttft_s=percentiles([answer.ttft_s for answer in good if answer.ttft_s is not None]),
        itl_s=percentiles([gap for answer in good for gap in answer.gaps_s]),
        e2e_s=percentiles([answer.seconds for answer in good]),
        lag_s=_known(percentiles(lags)),
        slow_tail_tok_s=1 / float(np.percentile(pace, 90)) if pace else None,
        output_tok_s=sum(answer.output_tokens for answer in good) / seconds,
        prompt_asked=sum(max(1, round(prompt)) for prompt, _ in scaled),
        prompt_got=sum(answer.prompt_tokens for answer in good),
        output_asked=sum(max(1, round(output)) for _, output in scaled),
        output_got=sum(answer.output_tokens for answer in good),
    )


def percentiles(seconds: Sequence[float]) -> Percentiles | None:
    """None without samples."""
    if not seconds:
        return None
    p50, p90, p99 = (float(value) for value in np.percentile(seconds, (50, 90, 99)))
    return Percentiles(p50=p50, p90=p90, p99=p99, samples=len(seconds))


def _known(found: Percentiles | None) -> Percentiles:
    assert found is not None, "a replay has requests"
    return found
