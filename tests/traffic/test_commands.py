"""The verbs of `reforward trace` as a user types them."""

import json
import subprocess
import sys
from pathlib import Path

from reforward.app.config import environment
from reforward.traffic.packaged import CODE, PATH
from traffic.upstream import Upstream, serving


def reforward(home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    around = {**environment(), "REFORWARD_HOME": str(home)}
    command = [sys.executable, "-m", "reforward.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=around, check=False, timeout=120)


def test_a_trace_is_converted_and_played(tmp_path: Path) -> None:
    out = tmp_path / "ours.jsonl"
    done = reforward(tmp_path, "trace", "convert", PATH, out)
    assert (done.returncode, "2000 requests as reforward" in done.stdout) == (0, True)
    assert reforward(tmp_path, "trace", "convert", PATH, out).returncode == 2, "nothing is written over"
    assert json.loads(reforward(tmp_path, "trace", "summary", out, "--json").stdout)["prompt"]["p50"] == 1032
    with serving(Upstream()) as url:
        words = ("--url", f"{url}/v1", "--limit", 20, "--length-scale", 0.05, "--time-scale", 20)
        told = reforward(tmp_path, "trace", "replay", out, *words)
        facts = json.loads(reforward(tmp_path, "trace", "replay", out, *words, "--json").stdout)
    assert told.returncode == 0
    assert "20 requests" in told.stdout
    assert "lengths x 0.05, time x 20" in told.stdout
    assert "generator's lag ms" in told.stdout
    assert (facts["requests"], facts["failed"], facts["output_got"]) == (20, 0, facts["output_asked"])


def test_a_replay_of_which_nothing_succeeds_fails(tmp_path: Path) -> None:
    done = reforward(tmp_path, "trace", "replay", PATH, "--url", "http://127.0.0.1:1/v1", "--limit", 1)
    assert done.returncode == 2
    assert "is the address right" in done.stderr


def test_drift_says_so_with_its_exit_code(tmp_path: Path) -> None:
    same = reforward(tmp_path, "trace", "drift", CODE, "--window", 200)
    assert (same.returncode, "no alarm" in same.stdout) == (0, True)
    other = reforward(tmp_path, "trace", "drift", CODE, "--reference", PATH, "--window", 200)
    assert other.returncode == 8
    assert "first alarm after 600 requests" in other.stdout


def test_purging_what_is_not_there(tmp_path: Path) -> None:
    assert "deleted 0 files" in reforward(tmp_path, "trace", "purge").stdout
    assert reforward(tmp_path, "trace", "purge", "nobody").returncode == 2
    assert reforward(tmp_path, "trace", "purge", "../escape").returncode == 2
