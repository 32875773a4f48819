"""Llama-3.2-1B in bf16 at batch 1 on one GPU: ms per token at four contexts, with checks. Random weights throughout.

    PYTHONPATH=src python bench/llama1b_gpu.py [--arms persistent,torch] [--repeats 7] [--contexts ctx_short,...]

A figure is the mean of 127 dependent greedy steps, with argmax, embedding and the move of the position inside; the table
shows the median of the repeats, arms interleaved. Before timing, each arm is checked at each context: intermediates are
filled with 0xff just before the launch, two runs must give the same bits, and the logits, teacher-forced, are
compared with an fp32 reference; the error of plain bf16 PyTorch against the same reference stands beside.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "recipes" / "llama-3.2-1b" / "h200"
sys.path[:0] = [str(RECIPE), str(ROOT / "src")]

from build import build as build_recipe  # noqa: E402
from pack import pack  # noqa: E402
from plain import Plain  # noqa: E402

from engine import Engine  # noqa: E402
from reforward.models.llama import rms_norm, rope_angles  # noqa: E402
from reforward.runtime.forward import Batch, Build, Limits, ModelSpec, RopeScaling, Segment  # noqa: E402

SPEC = ModelSpec(
    family="llama",
    layers=16,
    hidden=2048,
    heads=32,
    kv_heads=8,
    head_dim=64,
    intermediate=8192,
    vocab=128256,
    rms_eps=1e-5,
    rope_theta=500000.0,
    rope_scaling=RopeScaling(
        kind="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=8192
    ),
    tied=True,
    max_positions=131072,
)
CONTEXTS = {"ctx_short": 32, "ctx_1k": 1024, "ctx_4k": 4096, "ctx_16k": 16256}
STEPS = 127
LENGTH = 16384
DEVICE = torch.device("cuda")
KV_BYTES = 2 * SPEC.layers * SPEC.kv_heads * SPEC.head_dim * 2  # of one position


def random_weights(spec: ModelSpec, dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    """Normal weights of a size that keeps activations near one; seeded by the clock, so every run differs."""
    seed = time.time_ns() % 2**31
    made = torch.Generator(device=DEVICE).manual_seed(seed)
    print(f"random weights, seed {seed}")

    def matrix(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns, generator=made, device=DEVICE) * columns**-0.5).to(dtype)

    def gain() -> Tensor:
        return (1 + 0.1 * torch.randn(spec.hidden, generator=made, device=DEVICE)).to(dtype)

    kv = spec.kv_heads * spec.head_dim
    weights = {"model.embed_tokens.weight": matrix(spec.vocab, spec.hidden), "model.norm.weight": gain()}
    for layer in range(spec.layers):
        own = f"model.layers.{layer}"
        weights[f"{own}.input_layernorm.weight"] = gain()
        weights[f"{own}.post_attention_layernorm.weight"] = gain()
        for name, rows, columns in (
            ("self_attn.q_proj", spec.hidden, spec.hidden),
            ("self_attn.k_proj", kv, spec.hidden),
            ("self_attn.v_proj", kv, spec.hidden),
            ("self_attn.o_proj", spec.hidden, spec.hidden),
            ("mlp.gate_proj", spec.intermediate, spec.hidden),
            ("mlp.up_proj", spec.intermediate, spec.hidden),
            ("mlp.down_proj", spec.hidden, spec.intermediate),
        ):
            weights[f"{own}.{name}.weight"] = matrix(rows, columns)
    return weights


def new_state(slots: int, dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    shape = (slots, SPEC.kv_heads, LENGTH, SPEC.head_dim)
    names = [f"{kind}.{layer}" for layer in range(SPEC.layers) for kind in ("keys", "values")]
    return {name: torch.zeros(shape, dtype=dtype, device=DEVICE) for name in names}


def int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def feed(plain: Plain, tokens: Tensor, wanted: int, chunk: int = 4096) -> Tensor:
    """Prefill slot 0 with `tokens`; fp32 logits of the last `wanted` of them."""
    rows: list[Tensor] = []
    total = tokens.numel()
    for start in range(0, total, chunk):
        length = min(chunk, total - start)
        kept = [i for i in range(length) if start + i >= total - wanted]
        logits = torch.empty(len(kept), SPEC.vocab, device=DEVICE)
        segment = Segment(slot=0, start=start, length=length)
        plain.step(
            Batch(
                tokens=tokens[start : start + length],
                segments=(segment,),
                slot=int32(0),
                start=int32(start),
                length=int32(length),
                rows=torch.tensor(kept, dtype=torch.int32, device=DEVICE),
            ),
            logits,
        )
        rows.append(logits)
    return torch.cat(rows)


@dataclass
class Outputs:
    tokens: Tensor
    logits: Tensor


class TorchGraph:
    """The baseline: fused weights, plain PyTorch operators, one step in a CUDA graph, position on the device."""

    def __init__(self, build: Build, held: int) -> None:
        self.build, self.held = build, held
        weights = build.weights
        self.qkv = [
            torch.cat([weights[f"model.layers.{i}.self_attn.{k}_proj.weight"] for k in "qkv"])
            for i in range(SPEC.layers)
        ]
        self.gate_up = [
            torch.cat([weights[f"model.layers.{i}.mlp.{k}_proj.weight"] for k in ("gate", "up")])
            for i in range(SPEC.layers)
        ]
        self.token, self.position = int32(0), torch.zeros(1, dtype=torch.long, device=DEVICE)
        self.row = torch.zeros(1, dtype=torch.long, device=DEVICE)
        self.tokens = torch.zeros(STEPS, dtype=torch.int32, device=DEVICE)
        self.logits = torch.zeros(STEPS, SPEC.vocab, device=DEVICE)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._step()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()

    def _step(self) -> None:
        weights = self.build.weights
        x = F.embedding(self.token, weights["model.embed_tokens.weight"])
        cos, sin = rope_angles(self.position, SPEC, x.dtype)
        seen = (torch.arange(self.held, device=DEVICE) <= self.position)[None, :]
        for i in range(SPEC.layers):
            x = self._layer(x, i, cos, sin, seen)
        x = rms_norm(x, weights["model.norm.weight"], SPEC.rms_eps)
        logits = F.linear(x, weights["model.embed_tokens.weight"])
        self.logits.index_copy_(0, self.row, logits.float())
        self.token.copy_(logits.argmax(-1))
        self.tokens.index_copy_(0, self.row, self.token)
        self.position += 1
        self.row += 1

    def _layer(self, x: Tensor, i: int, cos: Tensor, sin: Tensor, seen: Tensor) -> Tensor:
        weights, own = self.build.weights, f"model.layers.{i}"
        qkv = F.linear(rms_norm(x, weights[f"{own}.input_layernorm.weight"], SPEC.rms_eps), self.qkv[i])
        heads = qkv.view(1, -1, SPEC.head_dim)
        q, k, v = heads.split((SPEC.heads, SPEC.kv_heads, SPEC.kv_heads), dim=1)

        def turn(t: Tensor) -> Tensor:
            first, second = t.chunk(2, dim=-1)
            return t * cos + torch.cat((-second, first), dim=-1) * sin

        keys, values = self.build.state[f"keys.{i}"][0], self.build.state[f"values.{i}"][0]
        keys.index_copy_(1, self.position, turn(k).transpose(0, 1))
        values.index_copy_(1, self.position, v.transpose(0, 1))
        mixed = F.scaled_dot_product_attention(
            turn(q).transpose(0, 1)[None],
            keys[None, :, : self.held],
            values[None, :, : self.held],
            attn_mask=seen,
            enable_gqa=True,
        )
        x = x + F.linear(mixed[0].transpose(0, 1).reshape(1, -1), weights[f"{own}.self_attn.o_proj.weight"])
        normed = rms_norm(x, weights[f"{own}.post_attention_layernorm.weight"], SPEC.rms_eps)
        gate, up = F.linear(normed, self.gate_up[i]).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, weights[f"{own}.mlp.down_proj.weight"])

    def __call__(self, last: Tensor, position: Tensor, out: Outputs) -> None:
        self.token.copy_(last)
        self.position.copy_(position)
        self.row.zero_()
        for _ in range(STEPS):
            self.graph.replay()


def read_rate(folder: Path, arena: Tensor) -> float:
    """Bytes per second of the best of three ring depths, one block an SM, median of 9 passes each."""
    flags = ("-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-gencode=arch=compute_90a,code=sm_90a")
    subprocess.run(["nvcc", *flags, str(RECIPE / "probe.cu"), "-o", str(folder / "probe.so")], check=True)
    probe = ctypes.CDLL(str(folder / "probe.so")).probe_read
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    out = torch.empty(blocks * 512, dtype=torch.int32, device=DEVICE)
    best = 0.0
    for depth in (6, 10, 13):
        arguments = (
            ctypes.c_void_p(arena.data_ptr()),
            ctypes.c_size_t(arena.numel()),
            blocks,
            depth,
            ctypes.c_void_p(out.data_ptr()),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )
        times = [timed(lambda: check(probe(*arguments))) for _ in range(11)][2:]  # noqa: B023
        best = max(best, arena.numel() / statistics.median(times) * 1e3)
    return best


def check(code: int) -> None:
    assert code == 0, f"CUDA error {code}"


def timed(work: Callable[[], None]) -> float:
    """Milliseconds of device time."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def reference_logits(weights: dict[str, Tensor], tokens: Tensor, wanted: int, dtype: torch.dtype) -> Tensor:
    """Logits of the last `wanted` positions by the plain forward in `dtype`, from the same bf16 weights."""
    wide = {name: tensor.to(dtype) for name, tensor in weights.items()}
    build = make_build(wide, {}, new_state(1, dtype), Path(), dtype)
    return feed(Plain(build), tokens, wanted)


def make_build(
    weights: dict[str, Tensor], packed: dict[str, Tensor], state: dict[str, Tensor], artifacts: Path, dtype: torch.dtype
) -> Build:
    limits = Limits(slots=1, length=LENGTH, tokens=4096, steps=STEPS)
    return Build(
        spec=SPEC,
        weights=weights,
        packed=packed,
        state=state,
        limits=limits,
        artifacts=artifacts,
        device=DEVICE,
        dtype=dtype,
    )


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


def poison(state: dict[str, Tensor], start: int) -> None:
    """Positions that decode has not written yet hold NaN."""
    for tensor in state.values():
        tensor[:, :, start:] = float("nan")


def verify(name: str, engine: Engine, base: Build, prompt: Tensor) -> dict[str, object]:
    """Poisoned, repeated, and against fp32; raises AssertionError if the forward is wrong."""
    length = prompt.numel()
    feed(Plain(base), prompt, 1)
    runs: list[Outputs] = []
    for _ in range(3):
        out = Outputs(
            torch.full((STEPS,), -1, dtype=torch.int32, device=DEVICE),
            torch.full((STEPS, SPEC.vocab), float("nan"), device=DEVICE),
        )
        poison(dict(base.state), length - 1)
        engine.scratch.fill_(0xFF)
        engine.decode(prompt[-1:], int32(0), int32(length - 1), STEPS, out.tokens, out.logits)
        torch.cuda.synchronize()
        runs.append(out)
    same = all(torch.equal(r.tokens, runs[0].tokens) and torch.equal(r.logits, runs[0].logits) for r in runs[1:])
    finite = bool(runs[0].logits.isfinite().all())
    greedy = bool(torch.equal(runs[0].logits.argmax(-1).to(torch.int32), runs[0].tokens))
    told = torch.cat((prompt, runs[0].tokens[:-1]))
    exact = reference_logits(dict(base.weights), told, STEPS, torch.float32)
    plain = reference_logits(dict(base.weights), told, STEPS, torch.bfloat16)
    ours_error, plain_error = relative(runs[0].logits, exact), relative(plain, exact)
    ratio = ours_error / plain_error
    passed = same and finite and greedy and ratio <= 2
    print(
        f"check {name} at {length}: same bits {same}, finite {finite}, token = argmax {greedy}, error {ours_error:.2e}, "
        f"plain bf16 {plain_error:.2e}, ratio {ratio:.2f}, distinct tokens {runs[0].tokens.unique().numel()}: "
        f"{'pass' if passed else 'FAIL'}",
        flush=True,
    )
    return {"passed": passed, "error": ours_error, "ratio": ratio, "same_bits": same}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--arms", default="persistent,torch")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--contexts", default=",".join(CONTEXTS))
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="where the tree was copied without its history")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    folder = Path(tempfile.mkdtemp())
    with torch.inference_mode():
        figures = measure(options, folder)
    finish(figures, options.out, options.commit)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    contexts = {name: CONTEXTS[name] for name in options.contexts.split(",")}
    start = time.perf_counter()
    build_recipe(folder)
    print(f"compiled in {time.perf_counter() - start:.1f} s")
    weights = random_weights(SPEC)
    base = make_build(weights, pack(SPEC, weights), new_state(1), folder, torch.bfloat16)
    total = sum(t.numel() * t.element_size() for t in weights.values())
    arena = torch.randint(0, 255, (total // 16384 * 16384,), dtype=torch.uint8, device=DEVICE)
    rate = read_rate(folder, arena)
    del arena
    floors = {name: (total + KV_BYTES * (n + STEPS / 2)) / rate * 1e3 for name, n in contexts.items()}
    print(
        f"ceiling: reads at {rate / 1e12:.3f} TB/s; weights {total / 1e9:.4f} GB; ms per token at best: "
        + ", ".join(f"{name} {floor:.4f}" for name, floor in floors.items()),
        flush=True,
    )
    engines = {arm: Engine(base, folder / f"{arm}.so") for arm in options.arms.split(",") if arm != "torch"}
    checks: dict[str, object] = {}
    times: dict[str, dict[str, list[float]]] = {}
    for context, length in contexts.items():
        prompt = torch.randint(0, SPEC.vocab, (length,), device=DEVICE, dtype=torch.int32)
        if not options.no_check:
            for name, engine in engines.items():
                checks[f"{name}.{context}"] = verify(name, engine, base, prompt)
        for tensor in base.state.values():
            tensor.zero_()  # no NaN of the checks: the baseline multiplies masked values by zero
        feed(Plain(base), prompt, 1)
        times[context] = time_arms(engines, base, prompt, options)
        for arm, values in times[context].items():
            print(
                f"{context} {arm}: {statistics.median(values):.4f} [{min(values):.4f}, {max(values):.4f}] ms, "
                f"{floors[context] / statistics.median(values):.1%} of the floor",
                flush=True,
            )
    table(times, floors)
    return {
        "ms_per_token": {c: {a: round(statistics.median(v), 5) for a, v in arms.items()} for c, arms in times.items()},
        "spread_ms": {
            c: {a: [round(min(v), 5), round(max(v), 5)] for a, v in arms.items()} for c, arms in times.items()
        },
        "floor_ms": {c: round(f, 5) for c, f in floors.items()},
        "read_tb_s": round(rate / 1e12, 4),
        "checks": checks,
        "weights": "random",
    }


def time_arms(
    engines: dict[str, Engine], base: Build, prompt: Tensor, options: argparse.Namespace
) -> dict[str, list[float]]:
    """ms per token, all repeats, arms interleaved."""
    length = prompt.numel()
    out = Outputs(torch.zeros(STEPS, dtype=torch.int32, device=DEVICE), torch.zeros(STEPS, SPEC.vocab, device=DEVICE))
    arms: dict[str, Callable[[], None]] = {}
    for name, engine in engines.items():
        arms[name] = lambda engine=engine: engine.decode(prompt[-1:], slot, position, STEPS, out.tokens, out.logits)
    slot, position = int32(0), int32(length - 1)
    if "torch" in options.arms.split(","):
        graph = TorchGraph(base, length + STEPS)
        arms["torch"] = lambda: graph(prompt[-1:], position.long(), out)
    values: dict[str, list[float]] = {name: [] for name in arms}
    for repeat in range(options.repeats + 2):
        for name, work in arms.items():
            taken = timed(work) / STEPS
            if repeat >= 2:
                values[name].append(taken)
    return values


def table(times: dict[str, dict[str, list[float]]], floors: dict[str, float]) -> None:
    arms = list(next(iter(times.values())))
    print("\nms per token, median of the repeats (share of the floor); random weights, bf16, batch 1")
    print(f"{'':28}" + "".join(f"{context:>20}" for context in times))
    print(f"{'floor':28}" + "".join(f"{floors[context]:20.4f}" for context in times))
    for arm in arms:
        row = [(statistics.median(times[c][arm]), floors[c]) for c in times]
        print(f"{arm:28}" + "".join(f"{f'{ms:.4f} ({floor / ms:.1%})':>20}" for ms, floor in row))


def finish(figures: dict[str, object], out: Path | None, commit: str | None) -> None:
    commit = (
        commit
        or subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
    )
    machine = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__, "cuda": torch.version.cuda}
    line = json.dumps({"bench": "llama1b_gpu", "machine": machine, "commit": commit or "unknown", "figures": figures})
    if out is not None:
        with out.open("a") as file:
            file.write(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
