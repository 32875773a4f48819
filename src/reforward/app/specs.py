"""What `--agent` may say, and the agent that it stands for."""

import sys
from collections.abc import Mapping
from pathlib import Path

from reforward.domain.errors import BadInput, Unavailable
from reforward.propose.command import Command
from reforward.propose.guest import Agent

KNOWN = 'command:"program {brief}", openai:MODEL'


def parse_agent(spec: str, environment: Mapping[str, str], *, base_url: str | None) -> Agent:
    """`command:...` or `openai:MODEL`; `BadInput` lists these."""
    kind, _, rest = spec.partition(":")
    if kind == "command":
        own = str(Path(sys.executable).parent)
        return Command(rest, dict(environment) | {"PATH": f"{own}:{environment.get('PATH', '')}"})
    if kind == "openai" and rest:
        return _model(rest, environment, base_url)
    raise BadInput(f"agent {spec!r} is none of: {KNOWN}")


def _model(name: str, environment: Mapping[str, str], base_url: str | None) -> Agent:
    try:
        from reforward.propose.model import Model
    except ModuleNotFoundError as error:
        raise Unavailable(f"{error.name} is not installed; pip install 'reforward[agents]'") from None
    key = environment.get("OPENAI_API_KEY", "")
    if not key and base_url is None:
        raise BadInput("no key: set OPENAI_API_KEY, or pass --base-url of a server that needs none")
    return Model(name, key=key or "none", base_url=base_url)
