"""Our own modules as programs: for what must not happen in the controller's process. Each prints one JSON document."""

import json
import subprocess
import sys
from typing import Any

from reforward.domain.errors import EngineLost
from reforward.engine.environment import environment

TIMEOUT_S = 60


def told_by(module: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> Any:
    """What `python -m module` prints; `EngineLost` with its last words if it fails."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    done = subprocess.run(command, env=environment(1), capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise EngineLost(f"{module} failed: {done.stderr.strip()[-1000:]}")
    return json.loads(done.stdout)
