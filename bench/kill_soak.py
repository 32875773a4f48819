"""`kill -9` of the controller, of an agent, of the engine, at random moments, again and again, in a run of three agents.

    python bench/kill_soak.py [--kills 50] [--seed 1]

The subject is a tiny random Llama; everything else is real. After each kill: no row that was in the ledger is missing and all
ids verify; when the controller died, so did everything that it had started, and the run is resumed; when an agent or the engine
died, the run goes on. At the end the agents are told to stop and the run is resumed once more: what was open is done, every job
has one answer, no candidate was screened twice, and every answer that an agent was told is in the ledger. Exit code 1 if not.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import card
from reforward.corpus.tiny import write_llama
from reforward.domain.attempt import Attempt, Ended
from reforward.domain.job import Answer, Job
from reforward.domain.run import Run, Turn
from reforward.domain.verdict import Verdict
from reforward.ledger.store import SqlLedger
from reforward.ledger.views import every, only

VICTIMS = ("controller", "agent", "engine")
GONE_S, START_S, END_S = 15.0, 900.0, 900.0
RECORDED = 10
"""Soaks of at least so many kills are recorded in bench/results."""
OPTIONS = ("--length-scale", "0.0625", "--requests", "3", "--min-gain", "0.5", "--threads", "1", "--budget", "30m")
Process = tuple[int, str]
"""(pid, start time): a pid alone may be another process by now."""


class Soak:
    """One run that is killed again and again; `problems` says what did not hold."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.stop = folder / "stop"
        self.kills: Counter[str] = Counter()
        self.starts = 0
        self.problems: list[str] = []
        self.rows: set[str] = set()
        write_llama(folder / "tiny")

    def run(self, kills: int) -> None:
        """All kills, then the end."""
        while self.kills.total() < kills:
            with self._started() as controller:
                while self.kills.total() < kills and self._working(controller) and self._kill(controller):
                    pass
        self.stop.touch()
        with self._started() as controller:
            code = controller.wait(timeout=END_S)
        if code != 0:
            log = (self.folder / f"controller-{self.starts}.log").read_text()
            self.problems.append(f"the last run ended with code {code}: {log[-1500:]}")
        self._account()

    @contextmanager
    def _started(self) -> Iterator["subprocess.Popen[str]"]:
        """The controller, resumed unless it is the first; whatever is left of it in the end is a problem."""
        agent = f"command:{sys.executable} {Path(__file__).with_name('agent.py')} {{brief}} 0.2 {self.stop}"
        words = ["optimize", str(self.folder / "tiny"), *OPTIONS, "--agent", agent, "--parallel", "3"]
        words += ["--resume"] if self.starts else []
        home = {"REFORWARD_HOME": str(self.folder / "home"), "REFORWARD_CACHE": str(self.folder / "cache")}
        self.starts += 1
        with (self.folder / f"controller-{self.starts}.log").open("w") as log:
            controller = subprocess.Popen(
                [sys.executable, "-m", "reforward.cli.main", *words],
                env=home | {"PATH": os.defpath},
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        try:
            yield controller
        finally:
            family = descendants(controller.pid)
            controller.kill()
            controller.wait()
            self._gone(family, "the controller")

    def _working(self, controller: "subprocess.Popen[str]") -> bool:
        """Wait until agents are in, every other time for one more answer, then for a random moment; False if the run has ended."""
        until, answers = time.monotonic() + START_S, self._answers() + self.draw.randint(0, 1)
        while not self._agents() or self._answers() < answers:
            if controller.poll() is not None:
                return False
            if time.monotonic() > until:
                self.problems.append(
                    f"no agent began, or none was answered, within {START_S:.0f} s of start {self.starts}"
                )
                return False
            time.sleep(0.2)
        time.sleep(self.draw.uniform(0.2, 4.0))
        return controller.poll() is None

    def _kill(self, controller: "subprocess.Popen[str]") -> bool:
        """Kill one of them; True if the controller lives on."""
        victim = self.draw.choice(VICTIMS)
        found = {"controller": [controller.pid], "agent": self._agents(), "engine": engines(controller.pid)}[victim]
        if not found:
            return controller.poll() is None
        pid = self.draw.choice(found)
        family = [(pid, started(pid)), *descendants(pid)]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills[victim] += 1
        if victim == "controller":
            controller.wait()
        self._gone(family, victim)
        self._verify()
        return controller.poll() is None

    def _agents(self) -> list[int]:
        """Leashes and programs at work in an agent's folder."""
        return [pid for pid in pids() if str(cwd(pid)).startswith(str(self.folder / "home" / "agents"))]

    def _answers(self) -> int:
        return len(every(self._ledger(), Answer)) if (self.folder / "home" / "ledger.db").exists() else 0

    def _gone(self, family: list[Process], whose: str) -> None:
        until = time.monotonic() + GONE_S
        while (left := [process for process in family if alive(process)]) and time.monotonic() < until:
            time.sleep(0.05)
        if left:
            self.problems.append(f"kill {self.kills.total()}: {len(left)} processes of {whose} outlived it: {left}")

    def _ledger(self) -> SqlLedger:
        return SqlLedger(self.folder / "home" / "ledger.db", self.folder / "home" / "blobs")

    def _verify(self) -> None:
        """All that was there is there, and right."""
        ledger = self._ledger()
        ledger.verify()
        tags = ("run", "candidate", "proposal", "job", "answer", "attempt", "ended", "turn", "verdict", "measurement")
        now = {record.id for tag in tags for record in ledger.records(tag)}
        if lost := self.rows - now:
            self.problems.append(f"kill {self.kills.total()}: {len(lost)} rows are lost")
        self.rows = now

    def _account(self) -> None:
        """Of the whole run."""
        ledger = self._ledger()
        jobs = {job.id for job in every(ledger, Job)}
        answers = Counter(answer.job for answer in every(ledger, Answer))
        verdicts = [only(ledger.get(turn.verdict), Verdict) for turn in every(ledger, Turn)]
        screened = Counter(verdict.candidate for verdict in verdicts if verdict.tier == "fast")
        told = [
            json.loads(line) for notes in self.folder.glob("home/agents/*/notes/jobs.jsonl") for line in whole(notes)
        ]
        done = {row["job"] for row in told if row["state"] == "done"}
        self.figures = {
            "starts": self.starts,
            "runs": len(every(ledger, Run)),
            "jobs": len(jobs),
            "answered": len(set(answers)),
            "answered twice": sum(count > 1 for count in answers.values()),
            "screened": len(screened),
            "screened twice": sum(count > 1 for count in screened.values()),
            "told": len(done),
            "told and not in the ledger": len(done - set(answers)),
            "attempts": len(every(ledger, Attempt)),
            "of them ended": len(every(ledger, Ended)),
            "rows": ledger.verify(),
        }
        for name in ("answered twice", "screened twice", "told and not in the ledger"):
            if self.figures[name]:
                self.problems.append(f"{name}: {self.figures[name]}")
        if jobs != set(answers) or self.figures["runs"] != 1:
            self.problems.append(f"{len(jobs - set(answers))} jobs are open in {self.figures['runs']} runs")


def whole(file: Path) -> list[str]:
    """Lines of a file whose writer may have been killed while it wrote the last one."""
    return [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def pids() -> list[int]:
    """All processes."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty if there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def started(pid: int) -> str:
    """When, in clock ticks; empty if it is gone."""
    fields = stat(pid)
    return fields[19] if fields else ""


def alive(process: Process) -> bool:
    """It is the same process, and not merely waited for."""
    fields = stat(process[0])
    return bool(fields) and fields[19] == process[1] and fields[0] not in "ZX"


def cwd(pid: int) -> Path:
    """Its folder; of one that is gone or not ours, none that agents have."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cwd").readlink()
    return Path("/")


def children(pid: int) -> list[int]:
    """Of all its threads."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def descendants(pid: int) -> list[Process]:
    """All that it started and that they started."""
    return [one for child in children(pid) for one in ((child, started(child)), *descendants(child))]


def engines(pid: int) -> list[int]:
    """The server of its engine."""
    found: list[int] = []
    for child in children(pid):
        with suppress(OSError):
            if b"reforward.engine.server" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def main() -> None:
    """One soak, one table, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(Path(name), args.seed)
        soak.run(args.kills)
    card.table("kills", list(VICTIMS), [[str(soak.kills[victim]) for victim in VICTIMS]])
    card.table("the run", ["", "count"], [[what, str(count)] for what, count in soak.figures.items()])
    for problem in soak.problems:
        print(problem)
    figures = {
        "kills": dict(soak.kills),
        "seed": args.seed,
        "seconds": round(time.monotonic() - begun),
        "problems": soak.problems,
        **{what.replace(" ", "_"): count for what, count in soak.figures.items()},
    }
    card.finish("kill_soak", figures) if args.kills >= RECORDED else print(json.dumps(figures))
    sys.exit(1 if soak.problems else 0)


if __name__ == "__main__":
    main()
