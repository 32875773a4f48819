"""Plain JSON over HTTP: what a program without any library of ours can do."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from door.house import BROKEN, QUICKER, SLOW, at_work, make_desk, opened
from reforward.app.agents.client import ask
from reforward.domain.candidate import Skipped
from reforward.domain.errors import BadInput
from reforward.ledger.views import every
from reforward.mcp.door import open_door


@pytest.fixture
def door(tmp_path) -> Iterator[str]:
    desk = make_desk(tmp_path)
    with open_door(opened(desk)) as guests, at_work(desk):
        yield guests.invite("ada")


def call(url: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as response:
            text, status = response.read().decode(), response.status
    except urllib.error.HTTPError as error:
        text, status = error.read().decode(), error.code
    return status, json.loads(text) if text.startswith("{") else text


def files(candidate) -> dict[str, str]:
    return {file.path: file.text for file in candidate.files}


def test_a_measurement_is_asked_for_and_found_again(door):
    status, asked = call(f"{door}/measurements", {"files": files(QUICKER)})
    assert (status, asked["state"]) == (202, "queued") or asked["state"] in ("running", "done")
    status, done = call(f"{door}/measurements/{asked['id']}?wait=60")
    assert (status, done["state"]) == (200, "done")
    assert done["result"]["ruling"]["reason"] == "promising"
    assert done["result"]["session"]["candidate"]["pass_s"]["value"] > 0
    assert call(f"{door}/jobs/{asked['id']}") == (200, done)
    assert call(f"{door}/measurements", {"files": files(QUICKER)}) == (200, done), "the same request is the same job"


def test_a_submission_ends_in_the_ledger_under_its_author(door):
    status, done = call(f"{door}/submissions?wait=60", {"files": files(QUICKER), "reason": "half the work"})
    assert (status, done["result"]["ruling"], done["result"]["tier"]) == (200, "accept", "slow")
    tried = call(f"{door}/history")[1]["tried"]
    assert [(row["author"], row["reason"], row["ruling"]["tier"]) for row in tried] == [
        ("ada", "half the work", "fast"),
        ("ada", "half the work", "slow"),
    ]
    assert call(f"{door}/status")[1]["incumbent"] == QUICKER.id
    assert "-# stock" in call(f"{door}/diff?a=incumbent&b=stock")[1]["diff"]
    assert call(f"{door}/source?of=incumbent")[1]["text"] == "# quicker\n"


def test_a_profile_and_a_failure(door):
    done = call(f"{door}/profiles?wait=60", {"files": {}, "base": "incumbent"})[1]
    assert done["result"]["ops"][0]["op"] == "scripted"
    failed = call(f"{door}/measurements?wait=60", {"files": files(BROKEN)})[1]
    assert failed["result"]["ruling"]["log"] == "last line of its log"


def test_the_brief_names_the_guests_own_door(door):
    status, text = call(f"{door}/brief")
    assert status == 200
    assert f"curl -s {door}/measurements" in text


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("measurements", b"not json", 400, "the body is not what is asked for"),
        ("measurements", {"file": {}}, 400, "unknown field"),
        ("measurements", {"files": {"forward.py": 3}}, 400, "Expected `str`"),
        ("measurements", {"files": {"kernel.cpp": ""}}, 400, "base='stock'"),
        ("measurements", {"files": {"../x": ""}, "base": "stock"}, 400, "plain relative path"),
        ("measurements", {"files": {f"f{n}.py": "" for n in range(99)}, "base": "stock"}, 400, "64 files"),
        ("measurements", b"x" * (5 << 20), 413, "smaller tree"),
        ("measurements?wait=soon", {"files": {"forward.py": ""}}, 400, "wait=30"),
        ("submissions", {"files": {}, "base": "stock"}, 400, "is the stock forward"),
        ("jobs/job:b2:00", None, 404, "there is no job"),
        ("source?of=zzzz", None, 400, "zzzz"),
        ("source?first=one", None, 400, "first=1"),
        ("nothing", None, 404, "Not Found"),
    ],
)
def test_bad_requests_are_answered_with_the_remedy(door, path, body, status, says):
    code, answer = call(f"{door}/{path}", body)
    assert (code, says in answer["error"]) == (status, True), answer


def test_a_tree_that_is_no_candidate_leaves_a_row_with_its_author(tmp_path):
    desk = make_desk(tmp_path)
    with open_door(opened(desk)) as guests, at_work(desk):
        door = guests.invite("ada")
        for _ in range(2):
            call(f"{door}/submissions", {"files": {"../../etc/passwd": ""}, "base": "stock"})
        call(f"{door}/measurements", {"files": {f"f{n}.py": "" for n in range(1000)}, "base": "stock"})
    rows = every(desk.house.ledger, Skipped)
    assert [row.author for row in rows] == ["ada", "ada"], "the same refusal is one row"
    assert "plain relative path" in rows[0].what
    assert "64 files" in rows[1].what


def test_a_folder_that_is_no_candidate_is_refused_before_it_is_sent(tmp_path, door):
    cases = {"a link": "is a link", "500 MB": "524,288,000 bytes", "a thousand files": "64 files", "bytes": "not UTF-8"}
    for name in cases:
        (tmp_path / name).mkdir()
        (tmp_path / name / "forward.py").write_text("# x\n")
    (tmp_path / "a link" / "more.py").symlink_to("/etc/passwd")
    with (tmp_path / "500 MB" / "more.py").open("wb") as file:
        file.truncate(500 << 20)
    for number in range(1000):
        (tmp_path / "a thousand files" / f"f{number}.py").touch()
    (tmp_path / "bytes" / "more.so").write_bytes(b"\x7fELF\xff")
    for name, says in cases.items():
        with pytest.raises(BadInput, match=says):
            ask("submit", tmp_path / name, door=door, reason="", repeat=0)


def test_without_a_key_there_is_no_door(door):
    root = door.rsplit("/", 1)[0]
    for path in ("/", "/status", "/guess/status", "/guess/mcp", "/mcp"):
        for body in (None, {}):
            code, answer = call(root + path, body)
            assert (code, "no such door" in answer["error"]) == (404, True)


def test_after_the_end_of_the_run_jobs_are_refused(tmp_path):
    desk = make_desk(tmp_path)
    with open_door(opened(desk)) as guests:
        door = guests.invite("ada")
        desk.close()
        code, answer = call(f"{door}/measurements", {"files": files(SLOW)})
    assert (code, "has ended" in answer["error"]) == (503, True)
