"""`reforward plan` from the shell: answers, refusals with the remedy, exit codes, files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from reforward.app.plans.check import read_results
from reforward.cli.verbs import app
from reforward.domain.errors import BadInput

FAST = ["Meta-Llama-3.1-8B", "--gpu", "h200", "--gpus", "1", "--traffic", "256/32", "--max-num-seqs", "64"]
LIMITS = [*FAST, "--max-num-batched-tokens", "2048"]


def _run(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", *words])


def test_a_plan_is_a_table_a_plot_and_a_command(tmp_path: Path) -> None:
    page, kept = tmp_path / "plan.html", tmp_path / "plan.json"
    done = _run(*LIMITS, "-o", str(page))
    assert done.exit_code == 0, done.output
    for part in ("most [90 %]", "P(SLA)", "tp1", "vllm serve Meta-Llama-3.1-8B --tensor-parallel-size 1"):
        assert part in done.output
    assert "data:image/png;base64," in page.read_text()
    assert "<td>tp1</td>" in page.read_text()
    assert _run(*LIMITS, "-o", str(kept)).exit_code == 0
    assert json.loads(kept.read_text())["choices"][0]["layout"] == "tp1"


def test_json_is_the_same_facts() -> None:
    told = json.loads(_run(*LIMITS, "--json").stdout)
    best = told["choices"][0]
    assert best["tok_s_gpu_low"] < best["tok_s_gpu"] < best["tok_s_gpu_high"]
    assert best["meets_sla"] > 0.8
    assert told["missed"] is None


def test_nothing_fits_has_an_exit_code_of_its_own() -> None:
    done = _run("Meta-Llama-3.1-405B", "--gpus", "1", "--traffic", "256/32")
    assert done.exit_code == 9, done.output
    assert "nothing fits; closest: tp1: memory (weights)" in done.output
    assert "more GPUs (--gpus 8)" in done.output


def test_the_fewest_gpus() -> None:
    done = _run("size", "Meta-Llama-3.1-8B", "--rate", "60/s", "--traffic", "256/32", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["gpus"] == told["choices"][0]["gpus"] >= 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--sla", "ttft_p90=500"], "has no unit"),
        (["--rate", "-3/s"], "must be above 0"),
        (["--traffic", "100/0"], "failed calls"),
        (["--gpu", "h300"], "near it: h200"),
        (["--layout", "tp3"], "32 heads of Meta-Llama-3.1-8B cannot be divided by tp3"),
        (["--layout", "tp16"], "a scale-up domain of h200 has 8"),
        (["--layout", "tp4"], "say --gpus 4"),
        (["--kv-dtype", "fp7"], "'fp7' is not known; one of"),
        (["--max-model-len", "100"], "a request of"),
        (["--max-num-batched-tokens", "8"], "is above --max-num-batched-tokens 8"),
        (["--gpus", "0"], "at least 1"),
        (["-o", "plan.pdf"], "cannot write a plan as '.pdf'"),
    ],
)
def test_bad_input_says_what_and_the_remedy(words: list[str], says: str) -> None:
    done = _run(*FAST, *words)
    assert isinstance(done.exception, BadInput), done.output
    assert says in str(done.exception)


def test_a_trace_with_rounded_times_is_spread_between_them(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 3000 * (i // 10), "input_length": 200, "output_length": 20} for i in range(200)]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = json.loads(_run(*LIMITS, "--traffic", str(trace), "--json").stdout)
    assert "requests were spread between them" in told["traffic"]


def test_a_plan_is_checked_against_requests(tmp_path: Path) -> None:
    kept, results, factors = tmp_path / "plan.json", tmp_path / "requests.jsonl", tmp_path / "factors.json"
    assert _run(*LIMITS, "-o", str(kept)).exit_code == 0
    rows = [
        {"arrival_s": i * 0.05, "prompt_tokens": 256, "output_tokens": 32, "ttft_s": 0.02, "e2e_s": 0.02 + 31 * 0.008}
        for i in range(60)
    ]
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = _run("check", str(kept), str(results), "-o", str(factors), "--json")
    assert done.exit_code == 0, done.output
    found = {one["name"]: one for one in json.loads(done.stdout)["compared"]}
    assert found["tpot_p50"]["measured"] == pytest.approx(0.008)
    assert found["tpot_p50"]["calibrated"] == pytest.approx(0.008, rel=0.1)
    again = _run(*LIMITS, "--calibration", str(factors), "--json")
    assert "corrected by factors.json" in json.loads(again.stdout)["times_from"]


def test_experts_that_real_traffic_prefers_change_the_plan(tmp_path: Path) -> None:
    flat, steep, wrong = (tmp_path / name for name in ("flat.json", "steep.json", "wrong.json"))
    flat.write_text(json.dumps([1] * 128))
    steep.write_text(json.dumps([1000] * 8 + [1] * 120))
    wrong.write_text("[1, 2]")
    words = ["Qwen3-30B-A3B", "--gpus", "1", "--traffic", "64/64", "--layout", "tp1", "--max-num-seqs", "16",
             "--max-num-batched-tokens", "512", "--sla", "itl_p90=200ms", "--json"]  # fmt: skip
    even, few = (json.loads(_run(*words, "--routing", str(path)).stdout)["choices"][0] for path in (flat, steep))
    assert few["tok_s_user"] > 1.05 * even["tok_s_user"], "fewer experts are read"
    refused = _run(*words, "--routing", str(wrong))
    assert "counts 2 experts, but Qwen3-30B-A3B has 128" in str(refused.exception)


def test_results_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"arrival_s": 1}\n')
    with pytest.raises(BadInput, match=r"line 1.*it needs one JSON object a line with arrival_s"):
        read_results(path)
