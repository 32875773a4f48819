"""What `--agent` may say, and the agent that it stands for."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from reforward.domain.errors import BadInput, Unavailable
from reforward.propose.command import Command
from reforward.propose.guest import Agent

KNOWN = 'command:"program {brief}", openai:MODEL, mini-swe-agent:MODEL'
TASK = "Read the file {brief} and do what it says. Your folder is the one that it lies in."
MINI = ("mini", "--yolo", "--exit-immediately", "--cost-limit", "0", "--task", TASK, "--model")
"""https://mini-swe-agent.com, version 2; models are named as litellm names them: openai/gpt-5, anthropic/claude-opus-4."""


def parse_agent(spec: str, environment: Mapping[str, str], *, base_url: str | None) -> Agent:
    """`command:...`, `openai:MODEL` or a known program; `BadInput` lists these."""
    kind, _, rest = spec.partition(":")
    if kind == "command":
        return Command(rest, _around(environment))
    if kind == "mini-swe-agent" and rest:
        told = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}
        return Command(shlex.join((*MINI, rest)), _around(environment) | told, remedy="pip install mini-swe-agent")
    if kind == "openai" and rest:
        return _model(rest, environment, base_url)
    raise BadInput(f"agent {spec!r} is none of: {KNOWN}")


def _around(environment: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment, with this `reforward` on the path."""
    return dict(environment) | {"PATH": f"{Path(sys.executable).parent}:{environment.get('PATH', '')}"}


def _model(name: str, environment: Mapping[str, str], base_url: str | None) -> Agent:
    try:
        from reforward.propose.model import Model
    except ModuleNotFoundError as error:
        raise Unavailable(f"{error.name} is not installed; pip install 'reforward[agents]'") from None
    key = environment.get("OPENAI_API_KEY", "")
    if not key and base_url is None:
        raise BadInput("no key: set OPENAI_API_KEY, or pass --base-url of a server that needs none")
    return Model(name, key=key or "none", base_url=base_url)
