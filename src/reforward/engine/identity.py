"""Who a module subject is: its weights' hash and its stock source, found in a process of its own, since that needs torch.

python -m reforward.engine.identity REFERENCE      prints one JSON document, marked
"""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass

from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import BadInput
from reforward.domain.record import HASH_BYTES
from reforward.engine.environment import environment
from reforward.engine.text import plain

TIMEOUT_S = 600
MARK = "identity of the subject: "
"""Begins the one line that is read; a subject may print what it likes."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What the controller knows of a module without importing it."""

    weights: str
    dtype: str
    nbytes: int
    stock: Candidate


def module_identity(reference: str) -> Identity:
    """Load the subject once, elsewhere. `BadInput` carries the loader's own words."""
    command = [sys.executable, "-m", "reforward.engine.identity", reference]
    try:
        done = subprocess.run(
            command,
            env=environment(1),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"subject {reference!r} does not load within {TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        words = plain(done.stderr.strip()[-2000:]) or f"exit code {done.returncode}"
        words = words.removeprefix(f"subject {reference!r}").lstrip(": ")
        raise BadInput(f"subject {reference!r} cannot be loaded: {words}")
    answers = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not answers:
        raise BadInput(f"subject {reference!r} cannot be loaded: its process ended without saying what it is")
    found = json.loads(answers[-1].removeprefix(MARK))
    files = tuple(SourceFile(path=path, text=text) for path, text in sorted(found["files"].items()))
    stock = Candidate(host="module", entry=found["entry"], files=files)
    return Identity(weights=found["weights"], dtype=found["dtype"], nbytes=found["nbytes"], stock=stock)


def main() -> None:
    """Load, hash, print."""
    from reforward.engine.worker import to_bytes
    from reforward.runtime.module import export_state, load_subject, module_stock

    try:
        subject = load_subject(sys.argv[1])
        state = export_state(subject.load())
        stock = module_stock(subject)
    except (BadInput, ImportError) as error:
        sys.exit(f"{error}")
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for name, tensor in sorted(state.items()):
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(to_bytes(tensor) if tensor.numel() else b"")
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in state.values() if tensor.is_floating_point()}
    answer = {
        "weights": digest.hexdigest(),
        "dtype": dtypes.pop() if len(dtypes) == 1 else "mixed",
        "nbytes": sum(tensor.nbytes for tensor in state.values()),
        "entry": stock.entry,
        "files": {file.path: file.text for file in stock.files},
    }
    print(f"\n{MARK}{json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main()
