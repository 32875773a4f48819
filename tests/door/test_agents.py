"""Agents that are programs, driving a run over the scripted engine through the real door."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from app.house import scripted_house
from door.house import QUICKER, ROLES
from reforward.app.agents.crew import Team, distinct, secret_values
from reforward.app.agents.specs import parse_agent
from reforward.app.budget import Budget
from reforward.app.config import Config
from reforward.app.events import AgentNews, Event
from reforward.app.house import House
from reforward.app.journal import Journal
from reforward.domain.attempt import Attempt, Ended
from reforward.domain.candidate import Proposal
from reforward.domain.errors import BadInput
from reforward.engine.sandbox import landlock_abi
from reforward.ledger.store import SqlLedger
from reforward.ledger.views import every, only
from reforward.mcp.door import open_door

AGENT = f"command:{sys.executable} {Path(__file__).with_name('agent.py')} {{brief}}"
AROUND = {"PATH": os.defpath, "SOME_API_KEY": "sk-very-secret", "REFORWARD_HOME": "/nonexistent/elsewhere"}


def house_on_disk(folder: Path) -> House:
    house = scripted_house(ROLES, SqlLedger(folder / "ledger.db", folder / "blobs"))
    return replace(house, config=Config(home=folder, cache=folder, threads=1))


def run(
    folder: Path, *specs: str, seconds: float = 300, around: Mapping[str, str] = AROUND
) -> tuple[House, Journal, list[Event]]:
    house, events = house_on_disk(folder), list[Event]()
    agents = [parse_agent(spec, around, base_url=None) for spec in specs]
    search = Team(agents=agents, door=open_door, secrets=secret_values(around)).search()
    begun = house.new_run(base=house.loaded.stock, proposers=search.proposers)
    house.ledger.append(begun)
    journal = Journal(house.ledger, begun)
    search.drive(house, journal, Budget(seconds=seconds), events.append)
    return house, journal, events


def test_a_program_works_through_the_door_and_leaves_its_record(tmp_path):
    house, journal, events = run(tmp_path, f"{AGENT} slow quicker")
    assert journal.incumbent.id == QUICKER.id
    (attempt,), (ended,) = every(house.ledger, Attempt), every(house.ledger, Ended)
    assert (ended.attempt, ended.how, attempt.run) == (attempt.id, "done", journal.run.id)
    assert [p.author for p in every(house.ledger, Proposal)] == [attempt.author]
    assert only(house.ledger.get(journal.turns[0].proposal), Proposal).reason == "quicker it is"
    blobs = house.ledger.blobs
    assert b"Make this forward pass faster" in blobs.get(attempt.brief)
    transcript = blobs.get(ended.transcript)
    assert b'"reason": "promising"' in transcript
    assert b"key [key]" in transcript
    for kept in (transcript, blobs.get(attempt.brief)):
        assert b"sk-very-secret" not in kept
        assert b"127.0.0.1:" not in kept, "an address is a key"
    notes = list(tmp_path.glob("agents/*/notes/notes.md"))
    assert [file.read_text() for file in notes] == ["tried ['slow', 'quicker']\n"]
    news = [event for event in events if isinstance(event, AgentNews)]
    assert [event.what.split()[0] for event in news] == ["begins:", "ends"]
    assert {event.author for event in news} == {attempt.author}


def test_several_at_once_share_the_engine_and_one_that_fails_stops_nobody(tmp_path):
    missing, broken = "command:no-such-program {brief}", f"command:{sys.executable} -c 'raise SystemExit(3)'"
    house, journal, _ = run(tmp_path, f"{AGENT} quick", missing, f"{AGENT} slow", broken)
    ends = {only(house.ledger.get(end.attempt), Attempt).author: end.how for end in every(house.ledger, Ended)}
    python = Path(sys.executable).name
    assert ends.pop("no-such-program").startswith("'no-such-program' is not installed")
    assert ends == {python: "done", f"{python}-2": "done", f"{python}-3": "exit code 3"}
    assert {p.author for p in every(house.ledger, Proposal)} == {python, f"{python}-2"}
    assert len({v.candidate for v in journal.verdicts if v.tier == "fast"}) == 2


def test_who_does_not_end_is_ended_with_all_that_it_started(tmp_path):
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '987']).pid, flush=True); subprocess.run(['sleep', '988'])"
    begun = time.monotonic()
    house, _, _ = run(tmp_path, f'command:{sys.executable} -c "{code}"', seconds=2)
    assert time.monotonic() - begun < 30
    (ended,) = every(house.ledger, Ended)
    assert ended.how == "stopped: the run has ended"
    child = int(house.ledger.blobs.get(ended.transcript).split()[0])
    assert _gone(child)


def test_an_agent_does_not_outlive_a_killed_controller():
    code = (
        "import subprocess, sys, time\n"
        "leash = subprocess.Popen([sys.executable, '-m', 'reforward.propose.leash', '--', 'sh', '-c', 'echo $$; sleep 989'],\n"
        "                         stdin=subprocess.PIPE, start_new_session=True)\n"
        "time.sleep(60)\n"
    )
    controller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert controller.stdout is not None
    agent = int(controller.stdout.readline())
    controller.kill()
    controller.wait()
    assert _gone(agent)


def test_who_writes_outside_its_folder_is_refused_and_the_transcript_says_so(tmp_path):
    if landlock_abi() == 0:
        pytest.skip("this kernel has no Landlock")
    ledger, other = tmp_path / "ledger.db", tmp_path / "elsewhere"
    fine, stray = "echo mine > notes/x; echo tmp > $TMPDIR/x", f"echo stray > {other}; rm {ledger}"
    link = f"ln -s {ledger} source/link; echo >> source/link"
    house, _, _ = run(tmp_path, f"command:sh -c '{fine}; {stray}; {link}; cat notes/x'")
    (ended,) = every(house.ledger, Ended)
    transcript = house.ledger.blobs.get(ended.transcript).decode()
    assert ended.how == "done"
    assert transcript.endswith("mine\n")
    assert transcript.count("ermission denied") == 3, transcript
    assert not other.exists()
    assert house.ledger.verify() > 5


def test_specs_that_mean_nothing_are_refused():
    for spec in ("", "claude", "command:", "command:'open quote", "openai:", "anthropic:", "mini-swe-agent"):
        with pytest.raises(BadInput):
            parse_agent(spec, {}, base_url=None)
    for protocol in ("openai", "anthropic"):
        with pytest.raises(BadInput, match=f"{protocol.upper()}_API_KEY"):
            parse_agent(f"{protocol}:some-model", {}, base_url=None)
    assert distinct(["a", "b", "a", "a"]) == ["a", "b", "a-2", "a-3"]


def _gone(pid: int) -> bool:
    """Within ten seconds; what is dead and not yet waited for counts."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False
