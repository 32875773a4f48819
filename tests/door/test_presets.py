"""Coding agents that are known by name. Those that are installed are run from the brief to a verdict; their model is a script."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from door.model_server import say, scripted_server, use
from door.test_agents import run
from reforward.app.agents.specs import parse_agent
from reforward.app.config import environment
from reforward.domain.attempt import Attempt, Ended
from reforward.domain.candidate import Proposal
from reforward.ledger.views import every
from reforward.propose.presets import PRESETS

KEY = "sk-not-a-real-key"
LOOK = "cat brief.md | head -3; reforward ask measure source"
SHELLS = {
    "claude": use("Bash", command=LOOK, description="look"),
    "codex": use("exec_command", cmd=LOOK),
    "opencode": use("bash", command=LOOK, description="look"),
}
TOOLS = {"claude": "mcp__reforward__", "codex": "mcp__reforward.", "opencode": "reforward_"}
"""How each program names the tools of an MCP server to its model."""
INSTALLED = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(preset.words[0]) is None, reason=preset.remedy))
    for name, preset in PRESETS.items()
    if preset.words[0] in SHELLS
]


def models(name: str, home: Path, url: str) -> tuple[str, dict[str, str]]:
    """(`--agent`, environment), after telling the program in its own way that its models are at this address."""
    if name == "claude-code":
        return "claude-code:claude-sonnet-4-5", {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY}
    if name == "codex":
        text = f'model_provider = "scripted"\n[model_providers.scripted]\nname = "scripted"\nbase_url = "{url}/v1"\n'
        write(home / ".codex" / "config.toml", text + 'wire_api = "responses"\nenv_key = "SOME_KEY"\n')
        return "codex:scripted", {"SOME_KEY": KEY}
    options = {"baseURL": f"{url}/v1", "apiKey": KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"scripted": {}}}
    write(home / ".config" / "opencode" / "opencode.json", json.dumps({"provider": {"scripted": provider}}))
    return "opencode:scripted/scripted", {"SOME_KEY": KEY}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)


@pytest.mark.real
@pytest.mark.parametrize("name", INSTALLED)
def test_an_installed_program_works_from_its_brief_over_mcp_and_the_shell_to_a_verdict(tmp_path, name):
    word = PRESETS[name].words[0]
    tools = TOOLS[word]
    script = (
        SHELLS[word],
        use(f"{tools}measure", files={"forward.py": "# quick\n"}, wait_s=30),
        use(f"{tools}submit", files={"forward.py": "# quicker\n"}, reason="half the work", wait_s=30),
        say("It is faster now."),
    )
    with scripted_server(*script) as (url, asked):
        spec, more = models(name, tmp_path / "user", url)
        around = environment() | {"HOME": str(tmp_path / "user")} | more
        house, journal, _ = run(tmp_path, spec, seconds=60, around=around)
    (attempt,), (ended,) = every(house.ledger, Attempt), every(house.ledger, Ended)
    transcript = house.ledger.blobs.get(ended.transcript).decode()
    assert (attempt.agent, ended.how) == (spec, "done"), transcript[-3000:]
    assert journal.incumbent.files[0].text == "# quicker\n", transcript[-3000:]
    assert [(p.author, p.reason) for p in every(house.ledger, Proposal)] == [(word, "half the work")]
    told = str(asked[-1][2])
    assert "Make this forward pass faster" in told
    assert "promising" in told
    assert KEY not in transcript
    assert "127.0.0.1:" not in transcript.replace(url, ""), "an address is a key"


@pytest.mark.parametrize("name", PRESETS)
def test_a_program_that_is_not_installed_is_named_with_how_to_get_it_and_its_config_leads_to_the_door(tmp_path, name):
    around = {"PATH": "/nonexistent", "HOME": str(tmp_path / "user")}
    house, _, _ = run(tmp_path, f"{name}:some-model", around=around)
    (ended,) = every(house.ledger, Ended)
    if "not installed" in ended.how:
        assert PRESETS[name].remedy in ended.how
    (folder,) = tmp_path.glob("agents/*")
    assert {"brief.md", "source", "notes"} <= {path.name for path in folder.iterdir()}
    assert all((tmp_path / "user" / place).is_dir() for place in PRESETS[name].state)
    for path in PRESETS[name].config:
        text = (folder / path).read_text()
        found = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
        servers = found.get("mcpServers") or found.get("mcp") or found["mcp_servers"]
        assert servers["reforward"]["url"].startswith("http://127.0.0.1:")
        assert servers["reforward"]["url"].endswith("/mcp")


def test_a_model_is_optional_where_the_program_has_one_of_its_own(tmp_path):
    around = {"PATH": "/nonexistent", "HOME": str(tmp_path)}
    assert "--model" not in parse_agent("codex", around, base_url=None).words
    assert parse_agent("codex:m", around, base_url=None).words[-2:] == ("--model", "m")


def test_state_that_its_user_has_moved_is_where_the_program_may_write(tmp_path):
    around = {"PATH": "/nonexistent", "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / "moved")}
    agent = parse_agent("claude-code", around, base_url=None)
    assert list(agent.writes) == [tmp_path / "moved"]
    assert agent.environment["CLAUDE_CONFIG_DIR"] == str(tmp_path / "moved")
