"""The stock forward against `transformers`, and against itself: however a sequence is cut, the logits are the same."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor

from models import tiny
from reforward.domain.spec import Segment

ROUNDING = 2e-5
"""Largest difference of fp32 logits of size 1 to 5 that another order of summation makes in three layers."""


def agree(ours: Tensor, theirs: Tensor, limit: float = ROUNDING) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max().item() < limit
    assert theirs.std().item() > 0.3, "logits near zero would agree with anything"


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_logits_are_those_of_transformers(variant: str) -> None:
    tokens = tiny.text(1, 40)
    with torch.inference_mode():
        theirs = tiny.reference(variant)(torch.tensor([tokens])).logits[0]
    agree(tiny.whole(tiny.host(variant), tokens), theirs)


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_greedy_tokens_are_those_of_transformers(variant: str) -> None:
    prompt, host = tiny.text(2, 9), tiny.host(variant)
    made = host.step(prompt, [Segment(slot=1, start=0, length=9)], [8], torch.empty(1, host.spec.vocab))
    for block in range(3):
        logits = torch.empty(4, host.spec.vocab)
        made += [row[0] for row in host.run([made[-1]], [1], [9 + 4 * block], 4, logits)]
    theirs = tiny.reference(variant).generate(
        torch.tensor([prompt]), max_new_tokens=13, min_new_tokens=13, do_sample=False, pad_token_id=0
    )
    assert made == theirs[0, 9:].tolist()


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_chunks_and_single_tokens_give_the_whole(variant: str) -> None:
    tokens, host = tiny.text(3, 24), tiny.host(variant)
    whole = tiny.whole(host, tokens, slot=0)
    chunks = [
        tiny.step(host, tokens[a:b], [(1, a, b - a)], range(b - a)) for a, b in ((0, 5), (5, 6), (6, 17), (17, 24))
    ]
    singles = [tiny.step(host, tokens[at : at + 1], [(2, at, 1)], [0]) for at in range(24)]
    agree(torch.cat(chunks), whole)
    agree(torch.cat(singles), whole)


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_a_mixed_batch_is_its_sequences_apart(variant: str) -> None:
    first, second, third = tiny.text(4, 12), tiny.text(5, 9), tiny.text(6, 7)
    alone = [tiny.whole(tiny.host(variant), tokens) for tokens in (first, second, third)]
    host = tiny.host(variant)
    tiny.step(host, first[:11], [(2, 0, 11)], [])
    tiny.step(host, second[:4], [(0, 0, 4)], [])
    mixed = tiny.step(host, [*third, first[11], *second[4:]], [(1, 0, 7), (2, 11, 1), (0, 4, 5)], [0, 6, 7, 12])
    agree(mixed, torch.stack([alone[2][0], alone[2][6], alone[0][11], alone[1][8]]))


def test_a_reused_slot_forgets() -> None:
    host, tokens = tiny.host("llama3"), tiny.text(8, 6)
    fresh = tiny.whole(host, tokens, slot=2)
    tiny.whole(host, tiny.text(7, 30), slot=0)
    assert torch.equal(tiny.whole(host, tokens, slot=0), fresh)


def test_attention_can_rewind() -> None:
    host, tokens = tiny.host("mistral"), tiny.text(9, 20)
    whole = tiny.whole(host, tokens)
    tiny.step(host, tiny.text(10, 8), [(0, 12, 8)], [7])
    agree(tiny.step(host, tokens[12:], [(0, 12, 8)], range(8)), whole[12:])


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_the_oracle_is_float64(variant: str) -> None:
    tokens = tiny.text(1, 40)
    exact = tiny.whole(tiny.host(variant, oracle=True), tokens)
    with torch.inference_mode():
        theirs = deepcopy(tiny.reference(variant)).double()(torch.tensor([tokens])).logits[0].float()
    agree(exact, theirs)
    assert (exact - tiny.whole(tiny.host(variant), tokens)).abs().max().item() < ROUNDING


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_bfloat16_is_as_close_as_its_eight_bits(variant: str) -> None:
    tokens = tiny.text(1, 40)
    rounded, host = tiny.host(variant, oracle=True), tiny.host(variant, torch.bfloat16)
    coarse = tiny.whole(host, tokens)
    exact = tiny.whole(rounded, tokens)
    relative = ((coarse - exact).pow(2).mean() / exact.pow(2).mean()).sqrt().item()
    assert 1e-4 < relative < 3e-2
    assert all(tensor.dtype == torch.bfloat16 for tensor in host.state.values())
