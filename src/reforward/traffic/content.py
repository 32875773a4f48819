"""Prompts and answers of a sample of calls: only if the operator opted in, encrypted, for a limited time."""

import base64
import json
import random
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from reforward.domain.call import Call
from reforward.domain.errors import BadInput
from reforward.traffic.segments import CONTENTS, FILE_BYTES, FOLDER_BYTES, Segments, purge

READS = "reads.log"
"""A line for each time that somebody read the contents."""
LOOK_S = 60.0
"""Expired files are looked for this often."""


class ContentStore:
    """Appends one Fernet token (AES-128-CBC and HMAC-SHA256, with its time) a line; files live at most `keep_s` seconds.

    A file is closed after a quarter of that time, and deleted when its last line has expired.
    """

    def __init__(
        self, folder: Path, key: bytes, *, share: float, keep_s: float, file_bytes: int = FILE_BYTES, seed: int = 0
    ) -> None:
        if not 0 < share <= 1 or keep_s <= 0:
            raise BadInput(f"content is kept of a share in (0, 1] for a time above 0, got {share:g} and {keep_s:g} s")
        self.folder, self._share, self._keep_s = folder, share, keep_s
        self._fernet, self._draw = _fernet(key), random.Random(seed or None)
        self.segments = Segments(folder, CONTENTS, file_bytes=file_bytes, folder_bytes=FOLDER_BYTES)
        self._opened = self._looked = time.monotonic()
        purge(folder, CONTENTS, keep_s)

    def take(self, calls: Sequence[Call]) -> None:
        """Keep some of them."""
        self._age()
        chosen = [call for call in calls if call.prompt and self._draw.random() < self._share]
        if chosen:
            self.segments.append(b"".join(self._fernet.encrypt(_plain(call)) + b"\n" for call in chosen), b"")

    def close(self) -> None:
        """Flush to the disk."""
        self.segments.close()

    def _age(self) -> None:
        now = time.monotonic()
        if now - self._opened > self._keep_s / 4:
            self.segments.close()
            self._opened = now
        if now - self._looked > min(LOOK_S, self._keep_s / 4):
            purge(self.folder, CONTENTS, self._keep_s)
            self._looked = now


def contents(folder: Path, key: bytes, keep_s: float) -> Iterator[dict[str, Any]]:
    """What is kept and has not expired. That somebody read it is written down first."""
    with (folder / READS).open("a", encoding="utf-8") as log:
        log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} contents were read\n")
    fernet = _fernet(key)
    for path in sorted(folder.glob(f"*{CONTENTS}")):
        for line in path.read_bytes().splitlines():
            try:
                if time.time() - fernet.extract_timestamp(line) <= keep_s:
                    yield json.loads(fernet.decrypt(line))
            except InvalidToken:
                yield {"unreadable": f"a line of {path.name} is cut off, damaged or of another key"}


def _fernet(key: bytes) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(key))


def _plain(call: Call) -> bytes:
    told = {"prompt": call.prompt, "answer": call.answer, "finish_reason": call.finish, "status": call.status}
    return json.dumps(told).encode()
