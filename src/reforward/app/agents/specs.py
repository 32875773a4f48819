"""What `--agent` may say, and the agent that it stands for."""

import sys
from collections.abc import Mapping
from pathlib import Path

from reforward.domain.errors import BadInput, Unavailable
from reforward.propose.command import Command, split
from reforward.propose.guest import Agent
from reforward.propose.presets import PRESETS, started

KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""Where the key of each protocol lies."""
KNOWN = (
    f'openai:MODEL, anthropic:MODEL, {", ".join(PRESETS)} (each with :MODEL if you like), command:"program {{brief}}"'
)


def parse_agent(spec: str, environment: Mapping[str, str], *, base_url: str | None) -> Agent:
    """A model, a coding agent that is known by name, or any command; `BadInput` lists these."""
    kind, _, rest = spec.partition(":")
    if kind == "command":
        return Command(split(rest), _around(environment), spec=spec)
    if kind in PRESETS:
        if PRESETS[kind].model_needed and not rest:
            raise BadInput(f"agent {spec!r} needs a model; write {kind}:MODEL")
        return started(kind, rest, _around(environment))
    if kind in KEYS and rest:
        return _model(kind, rest, environment, base_url)
    raise BadInput(f"agent {spec!r} is none of: {KNOWN}")


def _around(environment: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment, with this `reforward` on the path."""
    return dict(environment) | {"PATH": f"{Path(sys.executable).parent}:{environment.get('PATH', '')}"}


def _model(protocol: str, name: str, environment: Mapping[str, str], base_url: str | None) -> Agent:
    try:
        from reforward.propose.model import Model
        from reforward.propose.providers import Endpoint
    except ModuleNotFoundError as error:
        raise Unavailable(f"{error.name} is not installed; pip install 'reforward[agents]'") from None
    key = environment.get(KEYS[protocol], "")
    if not key and base_url is None:
        raise BadInput(f"no key: set {KEYS[protocol]}, or pass --base-url of a server that needs none")
    chosen = "anthropic" if protocol == "anthropic" else "openai"
    return Model(Endpoint(protocol=chosen, model=name, key=key or "none", base_url=base_url))
