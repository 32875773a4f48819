"""Texts, the fast workload, reference chunking."""

import itertools

import pytest

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request, Workload
from reforward.measure.references import CHUNK, ROWS, chunks
from reforward.measure.shorten import FAST_PROMPT, FAST_TOKENS, shorten
from reforward.measure.text import corpus, prompts


def words(text: str) -> list[int]:
    return [hash(word) % 5000 for word in text.split()]


def test_prompts_have_the_lengths_asked_for_and_follow_the_nonce() -> None:
    lengths = (1, 7, 48, 333)
    made = prompts("a", lengths, words)
    assert tuple(len(tokens) for tokens in made) == lengths
    assert made == prompts("a", lengths, words)
    assert made != prompts("b", lengths, words)


def test_texts_are_varied() -> None:
    made = prompts("nonce", (400,) * 20, words)
    openings = {tokens[:8] for tokens in made}
    assert len(openings) == 20
    assert all(len(set(tokens)) > 80 for tokens in made)
    assert len(corpus()) > 300_000


def test_a_tokenizer_that_gives_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="tokenizer"):
        prompts("a", (3,), lambda text: [])


def workload(prompt: int, output: int, concurrency: int) -> Workload:
    request = Request(arrival_s=0, prompt_tokens=prompt, output_tokens=output)
    return Workload(name="w", source="s", requests=(request,) * 4, weights=(1.0,) * 4, concurrency=concurrency)


def test_the_fast_workload_is_one_wave_with_the_ratio_kept() -> None:
    fast = shorten(workload(500, 100, 3), FAST_TOKENS)
    assert [request.output_tokens for request in fast.requests] == [5] * 3
    assert sum(request.prompt_tokens for request in fast.requests) == pytest.approx(3 * 5 * 5, abs=2)
    assert len({request.prompt_tokens for request in fast.requests}) == 3
    assert fast.concurrency == 3


@pytest.mark.parametrize(("concurrency", "outputs"), [(1, 8), (2, 8), (4, 4), (16, 4)])
def test_more_requests_at_once_produce_fewer_tokens_each(concurrency: int, outputs: int) -> None:
    fast = shorten(workload(500, 100, concurrency), FAST_TOKENS)
    assert {request.output_tokens for request in fast.requests} == {outputs}


def test_the_fast_prompt_is_capped_and_never_empty() -> None:
    assert shorten(workload(100_000, 1, 1), FAST_TOKENS).requests[0].prompt_tokens == FAST_PROMPT
    assert shorten(workload(1, 1000, 1), FAST_TOKENS).requests[0].prompt_tokens == 1


@pytest.mark.parametrize(
    "wanted",
    [[0], [CHUNK - 1], [CHUNK], [3, 700, 701, 1500], list(range(100)), list(range(250, 330)), [0, 5 * CHUNK + 1]],
)
def test_reference_calls_cover_all_positions_within_the_limits(wanted: list[int]) -> None:
    parts = list(chunks(wanted))
    assert parts[0][0] == 0
    assert parts[-1][1] == wanted[-1] + 1
    assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
    assert all(end - start <= CHUNK and len(rows) <= ROWS for start, end, rows in parts)
    assert [start + row for start, _, rows in parts for row in rows] == wanted
