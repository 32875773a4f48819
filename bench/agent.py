"""An agent without a mind for bench/agents.py: variants of its tree, measured, every third submitted, until the run ends.

    python bench/agent.py BRIEF THINK_S [STOP]

Every second tree has a build, which compiles a file of C++ of its own. It ends when there is a file STOP. What it was told lies
in its notes, too, so that it is known even if whoever started it is killed.
"""

import json
import os
import sys
import time
from pathlib import Path

from reforward.domain.errors import ReforwardError
from reforward.propose.knock import finished, knock

BUILD = """import subprocess
from pathlib import Path


def build(out):
    source = Path(out) / "{name}.cpp"
    source.write_text("#include <regex>\\nint {name}(const char* s) {{ return std::regex_match(s, std::regex(\\"a*b\\")); }}")
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", str(Path(out) / "{name}.so"), str(source)], check=True)
"""


def main() -> None:
    """One line of JSON for each job."""
    folder, think_s = Path(sys.argv[1]).parent, float(sys.argv[2])
    door = os.environ["REFORWARD_DOOR"]  # noqa: TID251 - a program of its own, told so by its environment
    files = {path.name: path.read_text() for path in (folder / "source").iterdir()}
    stop = Path(sys.argv[3]) if len(sys.argv) > 3 else folder / "never"
    notes = folder / "notes" / "jobs.jsonl"
    for number in range(10_000):
        if stop.exists():
            return
        name = f"v{number}_{folder.name}"
        tree = files | {"forward.py": f"{files['forward.py']}# {name}\n"}
        if number % 2:
            tree["build.py"] = BUILD.format(name=name)
        for what in ("measurements", "submissions")[: 2 if number % 3 == 0 else 1]:
            try:
                state = finished(door, knock(f"{door}/{what}", {"files": tree, "reason": name}))
            except ReforwardError as error:
                print(json.dumps({"over": str(error)}), flush=True)
                return
            line = json.dumps({"job": state["id"], "kind": state["kind"], "state": state["state"]})
            print(line, flush=True)
            with notes.open("a") as file:
                file.write(f"{line}\n")
        time.sleep(think_s)


if __name__ == "__main__":
    main()
