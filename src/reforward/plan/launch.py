"""The command that starts a planned configuration, as vLLM and SGLang spell it."""

import shlex

from reforward.plan.case import Case
from reforward.plan.disagg import Pair

KV = {"fp8": "fp8", "bf16": "auto"}


def command(case: Case, model: str) -> str:
    """One replica; `model` is what the engine is to load."""
    words = {"vllm": _vllm, "sglang": _sglang}.get(case.question.engine.name)
    if words is None:
        return f"# {case.question.engine.name}: no launch command is known; {case.layout}, {_limits(case)}"
    return shlex.join(words(case, model))


def both(pair: Pair, model: str) -> str:
    """A replica of each role; a router sends a request to one for its prompt, then to one for its answer."""
    transfer = {"vllm": ["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}']}
    roles = {"sglang": (["--disaggregation-mode", "prefill"], ["--disaggregation-mode", "decode"])}
    name = pair.decode.question.engine.name
    prefill, decode = roles.get(name, (transfer.get(name, []), transfer.get(name, [])))
    lines = [(pair.prefills, pair.prefill, prefill), (pair.decodes, pair.decode, decode)]
    return "\n".join(
        f"# {count} x\n{command(case, model)} {shlex.join(words)}".rstrip() for count, case, words in lines
    )


def _limits(case: Case) -> str:
    return f"{case.limits.max_num_seqs} sequences and {case.limits.max_num_batched_tokens} tokens a step"


def _vllm(case: Case, model: str) -> list[str]:
    """Options of `vllm serve` (vLLM 0.19 to 0.33); its limits are those of one data parallel rank."""
    layout, limits = case.layout, case.limits
    words = ["vllm", "serve", model, "--tensor-parallel-size", str(layout.tp)]
    if layout.pp > 1:
        words += ["--pipeline-parallel-size", str(layout.pp)]
    if layout.dp > 1:
        words += ["--data-parallel-size", str(layout.dp)]
    if layout.moe_ep > 1:
        words += ["--enable-expert-parallel"]
    words += [
        "--max-num-seqs",
        str(limits.max_num_seqs),
        "--max-num-batched-tokens",
        str(limits.max_num_batched_tokens),
    ]
    words += ["--max-model-len", str(case.memory.max_model_len)]
    words += ["--gpu-memory-utilization", f"{limits.memory_utilization:g}"]
    kv = KV.get(case.question.model.dtypes.kv, "auto")
    return [*words, "--kv-cache-dtype", kv] if kv != "auto" else words


def _sglang(case: Case, model: str) -> list[str]:
    """Options of `sglang.launch_server` (0.5): `--tp` counts all ranks, and requests are those of all ranks together."""
    layout, limits = case.layout, case.limits
    words = ["python", "-m", "sglang.launch_server", "--model-path", model, "--tp", str(layout.ranks)]
    if layout.pp > 1:
        words += ["--pp-size", str(layout.pp)]
    if layout.dp > 1:
        words += ["--dp", str(layout.dp), "--enable-dp-attention"]
    if layout.moe_ep > 1:
        words += ["--ep-size", str(layout.moe_ep)]
    words += ["--max-running-requests", str(limits.max_num_seqs * layout.dp)]
    words += ["--chunked-prefill-size", str(limits.max_num_batched_tokens)]
    words += ["--context-length", str(case.memory.max_model_len)]
    words += ["--mem-fraction-static", f"{limits.memory_utilization:g}"]
    kv = case.question.model.dtypes.kv
    return [*words, "--kv-cache-dtype", "fp8_e4m3"] if kv == "fp8" else words
