"""The search: what it finds holds, what it leaves out is worse, and what it says when nothing fits is true."""

from dataclasses import replace

import numpy as np
import pytest

from reforward.plan.affine import Affine
from reforward.plan.case import Priced, Question
from reforward.plan.engine import Engine, Limits
from reforward.plan.gpu import Gpu
from reforward.plan.launch import command
from reforward.plan.layout import Layout
from reforward.plan.model import Model
from reforward.plan.remedy import nearest
from reforward.plan.rows import EDGE_Z, SURE_Z
from reforward.plan.search import all_layouts, fewest, make_case, search
from reforward.plan.sla import parse_sla
from reforward.plan.traffic import Traffic


def _price(model: Model, gpu: Gpu, layout: Layout, engine: Engine) -> Priced:
    return Priced(steps=Affine.guess(model, gpu, layout), prefill_spread=0.15, decode_spread=0.1, about="guess")


def _question(
    model: str = "Meta-Llama-3.1-8B", gpus: int = 2, sla: tuple[str, ...] = ("ttft_p90=500ms", "itl_p90=30ms")
) -> Question:
    return Question(
        model=Model.read(model), gpu=Gpu.read("h200"), gpus=gpus, engine=Engine(name="vllm"),
        traffic=Traffic.preset("512/64"), sla=parse_sla(sla), price=_price,
    )  # fmt: skip


def _fixed(question: Question) -> Question:
    """With batch limits given, so that a test need not search them."""
    return replace(question, seats=64, tokens=4096)


def test_what_is_found_keeps_the_sla_and_a_little_more_load_breaks_it() -> None:
    found = search(_question(), [Layout(tp=1), Layout(tp=2)])
    assert {row.words for row in found.rows} == {"tp1", "tp2"}
    for row in found.rows:
        load = row.rate / row.replicas
        assert row.case.at(load).ratio <= 1
        assert row.case.at(load, SURE_Z).ratio <= 1.01
        assert row.case.at(load * 1.3, SURE_Z).ratio > 1
        assert row.meets >= 0.8
        assert row.interval[0] < row.tokens_per_gpu < row.interval[1]
        assert sum(row.terms.values()) == pytest.approx(1)
        assert row.replicas * row.case.layout.gpus == row.gpus <= 2
    assert [row.tokens_per_gpu for row in found.rows] == sorted(
        (row.tokens_per_gpu for row in found.rows), reverse=True
    )


def test_prompts_and_answers_apart_keep_the_sla_together() -> None:
    found = search(_fixed(_question(gpus=4, sla=("ttft_p90=500ms", "itl_p99=12ms"))))
    row = next(row for row in found.rows if row.pair is not None)
    pair = row.pair
    assert pair is not None
    assert row.gpus == pair.gpus <= 4
    assert row.words == f"{pair.prefills}P({pair.prefill.layout}) {pair.decodes}D({pair.decode.layout})"
    assert pair.at(row.rate, SURE_Z).ratio <= 1
    outcome = pair.at(row.rate)
    waits = outcome.run.ttft[outcome.first :]
    assert (waits > pair.transfer(np.array([512]))[0]).all(), "nobody is answered before prompt and cache are there"


def test_slower_steps_carry_less() -> None:
    case = make_case(_question(), Layout(tp=1), Limits(max_num_seqs=64, max_num_batched_tokens=2048))
    slow, fast = case.capacity(EDGE_Z), case.capacity(-EDGE_Z)
    assert 0 < slow < case.capacity() < fast


def test_with_a_rate_the_fewest_gpus_come_first() -> None:
    asked = replace(_fixed(_question(gpus=4)), rate=30.0)
    rows = search(asked).rows
    assert [row.gpus for row in rows] == sorted(row.gpus for row in rows)
    assert all(row.rate == pytest.approx(30) for row in rows)
    needed, found = fewest(asked, 16)
    assert needed.gpus == rows[0].gpus == found.rows[0].gpus


def test_a_load_that_the_gpus_do_not_carry_asks_for_more_of_them() -> None:
    asked = replace(_fixed(_question(gpus=1)), rate=200.0)
    found = search(asked)
    assert found.rows == ()
    miss = nearest(asked, found)
    assert "of 200 requests a second" in miss.shortfall
    enough = int(miss.remedy.split("--gpus ")[1].rstrip(")"))
    assert 4 < enough < 20
    assert search(replace(asked, gpus=enough)).rows


def test_a_limit_that_no_load_keeps_is_loosened_to_one_that_holds() -> None:
    asked = _fixed(_question(gpus=1, sla=("itl_p90=1ms",)))
    found = search(asked)
    assert found.rows == ()
    miss = nearest(asked, found)
    assert "even without load itl_p90 is" in miss.shortfall
    assert "--sla itl_p90=" in miss.remedy
    loosened = parse_sla([miss.remedy.split("--sla ")[1].rstrip(")")])
    assert search(replace(asked, sla=loosened)).rows


def test_weights_that_do_not_fit_name_the_bytes_and_a_way_out() -> None:
    asked = _question("Meta-Llama-3.1-405B", gpus=2)
    found = search(asked)
    assert found.cases == ()
    miss = nearest(asked, found)
    assert "GB a GPU too much" in miss.shortfall
    assert miss.remedy == "more GPUs (--gpus 8)"


def test_layouts_are_those_that_the_model_and_the_gpus_allow() -> None:
    dense = {str(one) for one in all_layouts(_question(gpus=8))}
    assert dense == {"tp1", "tp2", "tp4", "tp8"}
    sparse = {str(one) for one in all_layouts(_question("Qwen3-30B-A3B", gpus=4))}
    assert {"tp4", "tp4 ep4", "tp2 dp2 ep4", "tp1 dp4 ep4"} <= sparse
    assert len(sparse) == len(list(all_layouts(_question("Qwen3-30B-A3B", gpus=4))))


def test_launch_commands() -> None:
    asked = _question("Qwen3-30B-A3B", gpus=4)
    case = make_case(asked, Layout.parse("tp2 dp2 ep4"), Limits(max_num_seqs=64, max_num_batched_tokens=4096))
    vllm = command(case, "Qwen/Qwen3-30B-A3B")
    assert vllm.startswith(
        "vllm serve Qwen/Qwen3-30B-A3B --tensor-parallel-size 2 --data-parallel-size 2 --enable-expert-parallel"
    )
    assert "--max-num-seqs 64 --max-num-batched-tokens 4096" in vllm
    sglang = command(replace(case, question=replace(asked, engine=Engine(name="sglang"))), "M")
    assert "--tp 4 --dp 2 --enable-dp-attention --ep-size 4 --max-running-requests 128" in sglang
