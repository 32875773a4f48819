"""The fast tier's workload: the same traffic in small, so that one pass takes a fraction of a second."""

from dataclasses import replace

from reforward.domain.workload import Request, Workload

FAST_TOKENS, DEVICE_TOKENS = 16, 128
"""Tokens that a fast pass produces, about, over all its requests. On a CPU twice as many took twice the time and left the pairs as
noisy; on a device a step takes milliseconds and a launch a second, so that a longer pass is almost free.
"""
FEWEST, MOST = 4, 1 / 2
"""Tokens that each of its requests produces, at least, and at most, as a share of the above."""
FAST_PROMPT = 160
"""Longest prompt of a fast pass: prefill of long prompts is a slow-tier question."""


def shorten(workload: Workload, tokens: int) -> Workload:
    """One wave of `concurrency` requests with the ratio of prompt to output tokens kept, as far as the cap allows.

    Both arms play the same shapes, so a cap moves the mix of prefill and decode but not the fairness.
    """
    total = sum(request.prompt_tokens for request in workload.requests)
    count = workload.concurrency
    outputs = max(FEWEST, min(round(MOST * tokens), tokens // count))
    prompt = max(1, min(FAST_PROMPT, round(total / workload.output_tokens * outputs)))
    wave = tuple(_request(prompt, outputs, index, count) for index in range(count))
    return replace(workload, name=f"{workload.name} (fast)", requests=wave, weights=(1.0,) * len(wave))


def _request(prompt: int, outputs: int, index: int, count: int) -> Request:
    """Lengths spread by a quarter around the middle, so that a wave is ragged like the traffic."""
    spread = 1 + (0.25 * (2 * index / (count - 1) - 1) if count > 1 else 0)
    return Request(arrival_s=0.0, prompt_tokens=max(1, round(prompt * spread)), output_tokens=outputs)
