"""A language model with tools drives a run; its provider fails in all the usual ways. The wire is real, the mind is a script."""

import re
import time

import pytest

from door.model_server import break_off, fail, hang, html, say, scripted_server, use, use_raw
from door.test_agents import house_on_disk
from reforward.app.agents.crew import Team
from reforward.app.budget import Budget
from reforward.app.events import ignore
from reforward.app.journal import Journal
from reforward.domain.attempt import Ended
from reforward.domain.candidate import Proposal
from reforward.ledger.views import every
from reforward.mcp.door import open_door
from reforward.propose.model import Model
from reforward.propose.providers import Endpoint

KEY = "sk-not-a-real-key"
WRITE = use("write_file", path="forward.py", text="# quicker\n")


BASES = {"openai": "/v1", "anthropic": ""}
both = pytest.mark.parametrize("protocol", ["openai", "anthropic"])


def run(folder, *script, seconds=300.0, answer_s=20.0, protocol="openai", model="scripted-model"):
    house = house_on_disk(folder)
    with scripted_server(*script) as (url, asked):
        at = url + BASES[protocol]
        agent = Model(
            Endpoint(protocol=protocol, model=model, key=KEY, base_url=at, answer_s=answer_s, retries=0), pause_s=0.05
        )
        search = Team(agents=[agent], door=open_door, secrets=[KEY]).search()
        begun = house.new_run(base=house.loaded.stock, proposers=search.proposers)
        house.ledger.append(begun)
        journal = Journal(house.ledger, begun)
        search.drive(house, journal, Budget(seconds=seconds), ignore)
    (ended,) = every(house.ledger, Ended)
    return journal, ended, house.ledger.blobs.get(ended.transcript).decode(), asked


@both
def test_from_the_brief_over_tool_calls_to_a_verdict(tmp_path, protocol):
    journal, ended, transcript, asked = run(
        tmp_path,
        use("list_files"), use("read_file", path="forward.py"), use("read_source", of="contract", count=5), WRITE,
        use("replace", path="forward.py", old="nothing", new="x"), use("note", text="half the work"), use("profile"),
        use("search_library", text="def rms_norm", below="torch/nn"), use("read_library", path="../secrets"),
        use("measure"), use("submit", reason="half the work"), use("history"), use("status"), use("diff"),
        use("delete_file", path="forward.py"), use("measure"), say("It is twice as fast now."), protocol=protocol,
    )  # fmt: skip
    assert journal.incumbent.files[0].text == "# quicker\n"
    assert [(p.author, p.reason) for p in every(journal.ledger, Proposal)] == [("scripted-model", "half the work")]
    assert (ended.how, ended.calls, ended.tokens_in, ended.tokens_out) == ("done", 17, 1700, 170)
    path, key, body = asked[0]
    where = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[protocol]
    assert (path.partition("?")[0], key.removeprefix("Bearer ")) == (where, KEY)
    assert body["stream"] is True
    assert "Make this forward pass faster" in str(body["messages"])
    tools = {tool.get("function", tool)["name"] for tool in body["tools"]}
    assert tools >= {"measure", "submit", "profile", "write_file"}
    told = str(asked[-1][2]["messages"])
    for part in (
        "promising",
        "class Build",
        "scripted",
        "occurs 0 times",
        "'accept'",
        "base=",
        "functional.py:",
        "there is no file",
    ):
        assert part in told.replace('"accept"', "'accept'"), part
    assert KEY not in transcript
    assert "DOOR/measurements" in transcript, "an address is a key"
    assert "twice as fast" in transcript


@both
@pytest.mark.parametrize(
    ("step", "says"),
    [
        (fail(401, "Incorrect API key provided"), "refused: .*401.*Incorrect API key"),
        (fail(404, "The model does not exist", "model_not_found"), "refused: .*404.*does not exist"),
        (fail(400, "maximum context length is 8 tokens", "context_length_exceeded"), "refused: .*context"),
        (fail(429, "Rate limit reached"), "gave up after 3 failures.*429"),
        (fail(500, "internal"), "gave up after 3 failures.*500"),
        (html(), "gave up after 3 failures|refused|ended"),
        (html(502), "gave up after 3 failures.*502"),
        (break_off(), "gave up after 3 failures.*(finish|stop)_reason"),
        (say(""), "gave up after 3 failures"),
    ],
    ids=["key", "model", "context", "rate", "server", "page", "gateway", "stream", "empty"],
)
def test_a_provider_that_fails_ends_the_attempt_in_words(tmp_path, step, says, protocol):
    journal, ended, _, _ = run(tmp_path, step, protocol=protocol)
    assert journal.turns == []
    assert re.search(says, ended.how), ended.how


@both
def test_what_passes_is_tried_again_with_what_was_said(tmp_path, protocol):
    journal, ended, _, asked = run(
        tmp_path, WRITE, break_off(), fail(500, "internal"), use("submit", reason="again"),
        say("done"), protocol=protocol,
    )  # fmt: skip
    assert ended.how == "done"
    assert journal.incumbent.files[0].text == "# quicker\n"
    assert "write_file" in str(asked[-1][2]["messages"])


def test_malformed_tool_calls_and_unknown_tools_are_told_to_the_model(tmp_path):
    journal, ended, _, asked = run(
        tmp_path, use_raw("write_file", '{"path": "forward.py", '), use("optimise"), use("write_file", path="../x", text=""),
        use("write_file", path="forward.py"), WRITE, use("submit", reason="at last"), say("done"),
    )  # fmt: skip
    assert ended.how == "done"
    assert journal.incumbent.files[0].text == "# quicker\n"
    told = str(asked[-1][2]["messages"])
    assert "plain relative path" in told
    assert "Unknown tool" in told


@both
def test_a_silent_provider_is_given_up(tmp_path, protocol):
    _, ended, _, _ = run(tmp_path, hang(30), answer_s=0.2, protocol=protocol)
    assert "gave up after 3 failures" in ended.how


def test_the_end_of_the_run_does_not_wait_for_a_silent_provider(tmp_path):
    begun = time.monotonic()
    _, ended, _, _ = run(tmp_path, hang(30), seconds=1.0)
    assert ended.how == "stopped: the run has ended"
    assert time.monotonic() - begun < 20
