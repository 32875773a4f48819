"""A coding agent without a mind: reads its brief, tries the trees it was told to, submits the last one."""

import json
import os
import subprocess
import sys
from pathlib import Path


def ask(*words: str) -> dict:
    done = subprocess.run([sys.executable, "-m", "reforward.cli.main", "ask", *words], capture_output=True, text=True)
    print(done.stdout, done.stderr, flush=True)
    return json.loads(done.stdout)


brief = Path(sys.argv[1])
assert "Make this forward pass faster" in brief.read_text()
print("key", os.environ.get("SOME_API_KEY"), flush=True)  # noqa: TID251
source = brief.parent / "source"
assert (source / "forward.py").read_text() == "# stock\n"
for name in sys.argv[2:]:
    (source / "forward.py").write_text(f"# {name}\n")
    ask("measure", str(source))
(brief.parent / "notes" / "notes.md").write_text(f"tried {sys.argv[2:]}\n")
ask("submit", str(source), "--reason", f"{sys.argv[-1]} it is")
