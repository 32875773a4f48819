"""Coding agents that are known by name: their words, the file that tells them where the door is, and where they keep their state.

Each is told not to ask anybody for permission, since nobody is there to give it: what holds it is its leash. Claude Code:
https://code.claude.com/docs/en/cli-reference and /mcp; Codex: https://developers.openai.com/codex/config-reference; OpenCode:
https://opencode.ai/v1/docs/mcp-servers.md; mini-swe-agent: https://mini-swe-agent.com, whose models are named as litellm does.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reforward.propose.command import Command

TASK = (
    "Read the file {brief} and do what it says. Your folder is the one that it lies in; you can write nowhere else. The tools "
    "of the run are there through MCP, as the server `reforward`, and from a shell as `reforward ask`."
)
CLAUDE = {"mcpServers": {"reforward": {"type": "http", "url": "{door}/mcp"}}}
OPENCODE = {
    "$schema": "https://opencode.ai/config.json",
    "autoupdate": False,
    "mcp": {"reforward": {"type": "remote", "url": "{door}/mcp", "enabled": True, "oauth": False, "timeout": 120_000}},
    "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny", "external_directory": "deny"},
}
CODEX = '[mcp_servers.reforward]\nurl = "{door}/mcp"\ntool_timeout_sec = 120\n'


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One program."""

    words: tuple[str, ...]
    model: str
    """Option that names a model; a model of the program's own choice is used without it."""
    remedy: str
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    state: tuple[str, ...] = ()
    """Folders below the home folder that it writes."""
    moved: str = ""
    """Variable that names another folder for its state, if it has one."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    model_needed: bool = False


PRESETS = {
    "claude-code": Preset(
        words=(
            "claude", "--print", TASK, "--mcp-config", "mcp.json", "--strict-mcp-config", "--permission-mode", "acceptEdits",
            "--allowedTools", "Bash,Read,Edit,Write,Glob,Grep,mcp__reforward", "--output-format", "stream-json", "--verbose",
        ),
        model="--model",
        remedy="npm install -g @anthropic-ai/claude-code",
        config={"mcp.json": json.dumps(CLAUDE)},
        state=(".claude",),
        moved="CLAUDE_CONFIG_DIR",
        environment={"CLAUDE_CONFIG_DIR": "{home}/.claude", "DISABLE_AUTOUPDATER": "1", "MCP_TOOL_TIMEOUT": "120000"},
    ),
    "codex": Preset(
        words=(
            "codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", "--trust",
            "--config", "allow_login_shell=false", TASK,
        ),
        model="--model",
        remedy="npm install -g @openai/codex",
        config={".codex/config.toml": CODEX},
        state=(".codex",),
        moved="CODEX_HOME",
    ),
    "opencode": Preset(
        words=("opencode", "run", TASK, "--format", "json"),
        model="--model",
        remedy="npm install -g opencode-ai",
        config={"opencode.json": json.dumps(OPENCODE)},
        state=(".local/share/opencode", ".local/state/opencode", ".cache/opencode", ".config/opencode"),
    ),
    "mini-swe-agent": Preset(
        words=("mini", "--yolo", "--exit-immediately", "--cost-limit", "0", "--task", TASK),
        model="--model",
        remedy="pip install mini-swe-agent",
        state=(".config/mini-swe-agent",),
        moved="MSWEA_GLOBAL_CONFIG_DIR",
        environment={"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"},
        model_needed=True,
    ),
}  # fmt: skip
"""By the name that `--agent` takes."""


def started(name: str, model: str, around: Mapping[str, str]) -> Command:
    """The agent; `around` is the environment that it will find, with HOME in it. What is set there stays."""
    preset = PRESETS[name]
    home = Path(around.get("HOME", "/nonexistent"))
    told = {variable: text.replace("{home}", str(home)) for variable, text in preset.environment.items()}
    elsewhere = around.get(preset.moved)
    return Command(
        (*preset.words, preset.model, model) if model else preset.words,
        {**told, **around},
        spec=f"{name}:{model}" if model else name,
        remedy=preset.remedy,
        config=preset.config,
        writes=[Path(elsewhere)] if elsewhere else [home / place for place in preset.state],
    )
