"""`kill -9` of a run of agents at random moments: nobody outlives it, no row is lost, nothing is judged twice."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reforward.app.attempts import tallies
from reforward.corpus.tiny import write_llama
from reforward.domain.attempt import Attempt, Ended
from reforward.domain.job import Answer, Job
from reforward.domain.run import Run, Turn
from reforward.domain.verdict import Verdict
from reforward.ledger.store import SqlLedger
from reforward.ledger.views import every, only

pytestmark = pytest.mark.real
KILLS = 4
SCRIPT = """
cd "$(dirname "$1")"
for n in 1 2 3; do
    echo "# $2 $n" >> source/forward.py
    reforward ask measure source
    reforward ask submit source --reason "variant $n"
done
exit 0
"""
OPTIONS = ("--length-scale", "0.0625", "--requests", "3", "--min-gain", "0.5", "--threads", "1", "--budget", "200s")


def optimize(folder: Path, *more: str) -> "subprocess.Popen[str]":
    around = {"REFORWARD_HOME": str(folder / "home"), "REFORWARD_CACHE": str(folder / "cache"), "PATH": os.defpath}
    agents = [word for who in ("ada", "bob") for word in ("--agent", f"command:sh {folder}/agent.sh {{brief}} {who}")]
    words = [sys.executable, "-m", "reforward.cli.main", "optimize", str(folder / "tiny"), *OPTIONS, *agents, *more]
    return subprocess.Popen(words, env=around, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def at_work(folder: Path) -> list[int]:
    """Processes whose current folder is an agent's."""
    found: list[int] = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            where = str(link.readlink())
        except OSError:
            continue
        if where.startswith(str(folder / "home" / "agents")):
            found.append(int(link.parent.name))
    return found


def kill_somewhere(process: "subprocess.Popen[str]", draw: random.Random) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if " begins: " in line:
            break
    time.sleep(draw.uniform(0.5, 4.0))
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_run_of_agents_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    write_llama(tmp_path / "tiny")
    (tmp_path / "agent.sh").write_text(SCRIPT)
    draw, rows = random.Random(7), 0
    for number in range(KILLS):
        kill_somewhere(optimize(tmp_path, *(("--resume",) if number else ())), draw)
        until = time.monotonic() + 10
        while at_work(tmp_path) and time.monotonic() < until:
            time.sleep(0.1)
        assert at_work(tmp_path) == []
        ledger = SqlLedger(tmp_path / "home" / "ledger.db", tmp_path / "home" / "blobs")
        assert ledger.verify() >= rows
        rows = ledger.verify()
    last = optimize(tmp_path, "--resume")
    told, _ = last.communicate(timeout=280)
    assert last.returncode == 0, told
    (run,) = every(ledger, Run)
    verdicts = [only(ledger.get(turn.verdict), Verdict) for turn in every(ledger, Turn)]
    fast = [verdict.candidate for verdict in verdicts if verdict.tier == "fast"]
    assert len(fast) == len(set(fast)) == 6, told
    assert {answer.job for answer in every(ledger, Answer)} == {
        job.id for job in every(ledger, Job) if job.run == run.id
    }
    assert len(every(ledger, Attempt)) == 2 * (KILLS + 1)
    assert len(every(ledger, Ended)) >= 2
    monkeypatch.setenv("REFORWARD_HOME", str(tmp_path / "home"))
    listed = tallies(100)
    assert [one.how for one in listed[-2:]] == ["done", "done"]
    assert listed[0].how == "cut off"
    assert {one.author: one.ruled for one in listed} == {"sh": 3, "sh-2": 3}
