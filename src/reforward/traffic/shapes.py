"""The sink that keeps what calls were like, never what they said."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reforward.domain.call import Call
from reforward.traffic.blocks import PrefixHasher
from reforward.traffic.keys import salt_id
from reforward.traffic.native import OK, Header, row_line
from reforward.traffic.row import Row
from reforward.traffic.segments import FILE_BYTES, FOLDER_BYTES, SHAPES, Segments


class ShapeStore:
    """Appends a row for each call to files that `read_trace` reads.

    Times count from when the store was opened, by the clock that nobody sets; the wall clock is read once, for the header.
    """

    def __init__(
        self,
        folder: Path,
        key: bytes,
        *,
        unit: str,
        source: str,
        file_bytes: int = FILE_BYTES,
        folder_bytes: int = FOLDER_BYTES,
    ) -> None:
        self._hasher = PrefixHasher(key, unit)
        self._begun_s = time.monotonic()
        begun_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        header = Header(
            begun_at=begun_at, block_size=self._hasher.size, block_unit=unit, salt_id=salt_id(key), source=source
        )
        self._head = header.line().encode() + b"\n"
        self.segments = Segments(folder, SHAPES, file_bytes=file_bytes, folder_bytes=folder_bytes)

    def take(self, calls: Sequence[Call]) -> None:
        """One write for all of them."""
        if not calls:
            return
        self.segments.append("".join(self._line(call) + "\n" for call in calls).encode(), self._head)

    def close(self) -> None:
        """Flush to the disk."""
        self.segments.close()

    def _line(self, call: Call) -> str:
        return row_line(row_of(call, self._begun_s, self._hasher), _more(call))


def row_of(call: Call, begun_s: float, hasher: PrefixHasher) -> Row:
    """What a call was like, `begun_s` being 0 of its clock; its prompt is hashed and forgotten."""
    return Row(
        seconds=call.arrived_s - begun_s,
        prompt=call.prompt_tokens,
        output=call.output_tokens,
        blocks=hasher(call.prompt),
        sampling=call.sampling,
        busy_s=call.seconds,
        failed=call.status >= OK or call.output_tokens == 0,
    )


def _more(call: Call) -> dict[str, Any]:
    more: dict[str, Any] = {"status": call.status}
    if call.ttft_s is not None:
        more["ttft_ms"] = round(call.ttft_s * 1000, 3)
    if call.finish:
        more["finish_reason"] = call.finish
    if call.estimated:
        more["estimated"] = True
    return more
