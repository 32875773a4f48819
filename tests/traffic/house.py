"""Calls as a front would tell them."""

import contextlib
import resource
from collections.abc import Iterator

from reforward.domain.call import Call
from reforward.domain.workload import Sampling

SAID = Sampling(temperature=0.7, max_tokens=64, stream=True, stops=2)


def call(at: float, prompt: tuple[int, ...] | str = (1, 2, 3), *, output: int = 2, status: int = 200) -> Call:
    """A call that arrived `at` seconds on the clock that nobody sets and took half a second."""
    return Call(
        arrived_s=at, seconds=0.5, ttft_s=0.1, prompt_tokens=max(1, len(prompt)), output_tokens=output, sampling=SAID,
        status=status, finish="stop", prompt=prompt, answer=(7,) * output,
    )  # fmt: skip


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to let files grow further, as it does when a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
