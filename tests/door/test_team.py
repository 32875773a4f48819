"""Agents together: seats, money, styles of brief, and the experiment that compares these."""

import math
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from door.model_server import say, scripted_server, use
from door.test_agents import AGENT, AROUND, house_on_disk
from reforward.app.agents.attempts import tallies
from reforward.app.agents.crew import Team
from reforward.app.agents.experiment import compare, difference, experiment, total_gain
from reforward.app.agents.purse import parse_usd
from reforward.app.agents.specs import parse_agent
from reforward.app.budget import Budget
from reforward.app.events import ignore
from reforward.app.journal import Journal
from reforward.app.settings import Settings
from reforward.app.utilisation import PARTS, Span, utilisation
from reforward.domain.attempt import Attempt, Ended, Spent
from reforward.domain.errors import BadInput
from reforward.domain.target import Machine
from reforward.ledger.views import every, only
from reforward.mcp.door import open_door
from reforward.propose.brief import playbook
from reforward.propose.model import Model
from reforward.propose.providers import Endpoint

QUICKER = use("write_file", path="forward.py", text="# quicker\n")


def team(agents, **more) -> Team:
    return Team(agents=agents, door=open_door, secrets=(), **more)


def drive(folder, of, seconds=60.0):
    house = house_on_disk(folder)
    run = house.new_run(base=house.loaded.stock, proposers=of.search().proposers)
    house.ledger.append(run)
    journal = Journal(house.ledger, run)
    return house, journal, of.drive(house, journal, Budget(seconds=seconds), ignore)


def program(text: str):
    return parse_agent(f"command:{text}", AROUND, base_url=None)


def test_seats_are_filled_in_turn_and_whoever_finds_none_waits(tmp_path):
    a, b = program("sh -c 'echo a'"), program("python3 -c 1")
    assert [agent.name for agent in team([a, b], parallel=5).seated()] == ["sh", "python3", "sh", "python3", "sh"]
    stamp = "date +%s.%N; sleep 0.5; date +%s.%N"
    house, _, _ = drive(tmp_path, team([program(f"sh -c '{stamp}'")] * 3, parallel=1))
    texts = [house.ledger.blobs.get(end.transcript).decode().split() for end in every(house.ledger, Ended)]
    times = sorted(tuple(map(float, text)) for text in texts)
    assert len(times) == 3
    assert all(after[0] >= before[1] for before, after in pairwise(times)), times


def test_an_engine_that_agents_work_with_tells_where_its_time_went(tmp_path):
    _, _, driven = drive(
        tmp_path, team([parse_agent(f"{AGENT} {name}", AROUND, base_url=None) for name in ("slow", "quicker")])
    )
    assert driven.engine is not None
    assert {share.author for share in driven.engine.authors} == {
        Path(sys.executable).name,
        f"{Path(sys.executable).name}-2",
    }
    assert sum(share.seconds for share in driven.engine.authors) == pytest.approx(
        driven.engine.busy_share * driven.engine.seconds, rel=1e-6
    )
    made = utilisation([Span(author="a", begun_s=3.0, ended_s=6.0)], 6.0, (), 0.0)
    assert made.busy_share == 0.5
    assert made.timeline == pytest.approx([0.0] * (PARTS // 2) + [1.0] * (PARTS // 2))


def test_a_limit_of_money_stops_models_and_what_they_cost_is_kept(tmp_path, monkeypatch):
    again = use("note", text="thinking")
    with scripted_server(QUICKER, use("submit", reason="half"), again) as (url, asked):
        endpoint = Endpoint(protocol="openai", model="gpt-5", key="k", base_url=f"{url}/v1")
        house, journal, _ = drive(tmp_path, team([Model(endpoint)], most_usd=0.003))
    (ended,), (spent,) = every(house.ledger, Ended), every(house.ledger, Spent)
    assert ended.how == "stopped: 0.003 US dollars are spent"
    assert 0.003 <= spent.usd < 0.02, f"{len(asked)} answers"
    assert spent.usd == pytest.approx(ended.tokens_in * 1.25e-6 + ended.tokens_out * 10e-6), "list price of gpt-5"
    monkeypatch.setenv("REFORWARD_HOME", str(tmp_path))
    (row,) = tallies(10)
    assert row.usd == spent.usd
    assert row.usd_per_percent == pytest.approx(spent.usd / (100 * total_gain(journal.accepted)))


def test_a_limit_of_money_needs_agents_that_tell_what_they_cost(tmp_path):
    unpriced = Model(Endpoint(protocol="openai", model="home-made", key="k", base_url="http://127.0.0.1:9/v1"))
    for agent in (program("sh -c true"), unpriced):
        with pytest.raises(BadInput, match=r"--max-cost cannot be kept"):
            team([agent], most_usd=1.0)
        assert team([agent]).most_usd == math.inf
    assert parse_usd("0.5USD") == 0.5
    for wrong in ("5", "5eur", "0usd", "-1usd", ""):
        with pytest.raises(BadInput, match="5usd"):
            parse_usd(wrong)


def test_a_playbook_is_told_when_asked_for_and_fits_the_machine(tmp_path):
    house, _, _ = drive(tmp_path, team([program("cat {brief}")], style="playbook"))
    plain, _, _ = drive(tmp_path / "naive", team([program("cat {brief}")]))
    texts = [
        one.ledger.blobs.get(only(one.ledger.get(every(one.ledger, Attempt)[0].id), Attempt).brief)
        for one in (house, plain)
    ]
    assert b"Guide: decoding on a CPU" in texts[0]
    assert b"Guide" not in texts[1]
    assert team([program("cat")], style="playbook").search().proposers == ("command:cat", "brief:playbook")
    card = Machine(cpu="c", cores=1, isa="avx2", memory_gib=1, devices=("NVIDIA H200",))
    target = type(house.engine.target)(subject="s", machine=card, software=(), launch=house.engine.target.launch)
    assert "NVIDIA GPU" in playbook("playbook", target)


def test_an_experiment_runs_both_arms_from_the_stock_and_pairs_them_by_repeat(tmp_path):
    house = house_on_disk(tmp_path)
    quick, quicker = (parse_agent(f"{AGENT} {name}", AROUND, base_url=None) for name in ("quick", "quicker"))
    arms = {"naive": team([quick]).search(), "playbook": team([quicker], style="playbook").search()}
    found = compare(house, arms, budget="60s", repeats=2, emit=ignore)
    assert [(trial.repeat, trial.place) for trial in found.trials] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {trial.arm for trial in found.trials if trial.repeat == 1} == {"naive", "playbook"}
    assert all(trial.gain > 0 for trial in found.trials)
    low, high = found.difference.low, found.difference.high
    assert low is not None
    assert high is not None
    assert low <= found.difference.mid <= high
    assert found.difference.mid > 0.3, "5 ms a step against 8"


def test_the_interval_of_a_difference_is_students():
    found = difference([0.0, 0.0, 0.0], [0.1, 0.2, 0.3])
    assert found.low is not None
    assert found.high is not None
    assert math.log1p(found.mid) == pytest.approx(0.18004, abs=1e-4)
    assert (math.log1p(found.high) - math.log1p(found.low)) / 2 == pytest.approx(
        4.3027 * 0.08362 / math.sqrt(3), rel=1e-3
    )
    assert difference([0.0], [0.5]).low is None
    assert difference([0.0, 0.0], [0.0, 0.0]).low is None, "that nothing was found is no certainty"
    with pytest.raises(BadInput, match="two different arms"):
        experiment("smollm2", Settings(), {}, budget="1s", repeats=1, emit=ignore)


def test_one_provider_that_fails_leaves_the_others_at_work(tmp_path):
    with scripted_server(QUICKER, use("submit", reason="half"), say("done")) as (url, _):
        fine = Model(Endpoint(protocol="anthropic", model="fine", key="k", base_url=url))
        dead = Model(
            Endpoint(protocol="openai", model="dead", key="k", base_url="http://127.0.0.1:9/v1", retries=0),
            pause_s=0.01,
        )
        house, journal, _ = drive(tmp_path, team([dead, fine, program("false"), program("true")]))
    ends = {only(house.ledger.get(end.attempt), Attempt).author: end.how for end in every(house.ledger, Ended)}
    assert "gave up after 3 failures" in ends.pop("dead")
    assert ends == {"fine": "done", "false": "exit code 1", "true": "done"}
    assert journal.incumbent.files[0].text == "# quicker\n"
