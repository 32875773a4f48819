"""The whole flow on real models, through the command line: propose, measure, judge, record, export, submit again, resume."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reforward.app.read import history, open_ledger
from reforward.domain.run import Turn
from reforward.domain.verdict import Verdict
from reforward.ledger.views import every

pytestmark = pytest.mark.real
FRACAST = Path(__file__).parents[2] / "examples/science/fracast/subject.py"
SHORT = ("--length-scale", "0.0625", "--requests", "3", "--min-gain", "0.1")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reforward")


def command(home: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    environment = {"REFORWARD_HOME": str(home / "home"), "PATH": os.defpath, "HOME": str(Path.home())}
    return [sys.executable, "-m", "reforward.cli.main", *words], environment


def reforward(home: Path, *words: str, codes: tuple[int, ...] = (0,)) -> str:
    words, environment = command(home, *words)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in codes, done.stderr + done.stdout
    return done.stdout


def test_smollm2_from_traffic_to_export(home):
    report = json.loads(reforward(home, "optimize", "smollm2", "--candidates", "1", *SHORT, "--json"))
    assert report["screened"] == 1
    assert sum(report["verdicts"].values()) >= 1
    assert int(reforward(home, "verify").split()[0]) > 5
    lines = json.loads(reforward(home, "log", "--json"))
    assert {line["verdict"]["tier"] for line in lines if line["verdict"]} >= {"fast"}
    if report["verdict"] is None:
        pytest.skip("nothing was promoted on this machine, so there is nothing to export")
    best = report["best"]
    assert report["session"]["candidate"]["decode_tok_s"]["value"] > 0
    folder = home / "export"
    reforward(home, "export", best, str(folder))
    assert "gain +" in (folder / "forward.py").read_text()
    assert "--- a/forward.py" in reforward(home, "diff", best)
    words, environment = command(home, "submit", "smollm2", str(folder), *SHORT, "--json")
    again = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert again.returncode == 2, again.stderr
    assert "is the incumbent" in again.stderr, "what is the best already cannot beat itself"


def test_a_candidate_that_raises_is_a_failed_row_with_its_log(home, tmp_path):
    stock = Path(__file__).parents[2] / "src/reforward/models/llama.py"
    text = stock.read_text().replace(
        "        spec, weights = self.spec, self.weights\n        x = F", "        1 / 0\n        x = F"
    )
    assert text != stock.read_text()
    (tmp_path / "forward.py").write_text(text)
    done = json.loads(reforward(home, "submit", "smollm2", str(tmp_path), *SHORT, "--json", codes=(7,)))
    assert (done["ruling"], done["reason"]) == ("reject", "failed")
    failed = json.loads(reforward(home, "show", done["measurement"], "--json"))["record"]
    assert failed["stage"] == "run"
    assert "ZeroDivisionError" in failed["reason"]
    assert "1 / 0" in failed["log"]


def test_zeros_are_never_accepted(home, tmp_path):
    stock = Path(__file__).parents[2] / "src/reforward/models/llama.py"
    text = stock.read_text().replace("logits.copy_(linear(x, head)[batch.rows])", "logits.zero_()")
    assert text != stock.read_text()
    (tmp_path / "forward.py").write_text(text)
    done = json.loads(reforward(home, "submit", "smollm2", str(tmp_path), *SHORT, "--json", codes=(7,)))
    assert done["ruling"] == "reject"
    assert done["reason"] in ("numerics", "token-mismatch")


def test_fracast_is_judged_bit_for_bit(home):
    report = json.loads(reforward(home, "optimize", str(FRACAST), "--candidates", "2", "--min-gain", "0.02", "--json"))
    assert report["subject"] == "fracast"
    assert report["screened"] >= 1
    assert report["session"] is None or report["session"]["candidate"]["decode_tok_s"] is None


def test_a_killed_run_resumes_without_repeating_or_losing_a_row(home, monkeypatch):
    options = ("optimize", str(FRACAST), "--from-stock", "--candidates", "2", "--min-gain", "0.3")
    words, environment = command(home, *options)
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().startswith("fast"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    monkeypatch.setenv("REFORWARD_HOME", str(home / "home"))
    ledger = open_ledger()
    before = every(ledger, Turn)
    ledger.verify()
    reforward(home, *options, "--resume")
    after = every(open_ledger(), Turn)
    assert after[: len(before)] == before
    own = [turn for turn in after if turn.run == before[-1].run]
    fast = [ledger.get(turn.verdict) for turn in own]
    screened = [v.candidate for v in fast if isinstance(v, Verdict) and v.tier == "fast"]
    assert len(screened) == len(set(screened)) == 2
    assert history(1)
