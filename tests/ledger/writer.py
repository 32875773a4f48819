"""A process that appends turns as fast as it can and says so after each: -m ledger.writer LEDGER BLOBS START COUNT."""

import sys
from pathlib import Path

from ledger.records import STOCK, candidate, run, turn
from reforward.ledger.store import SqlLedger


def main(where: str, blobs: str, start: int, count: int) -> None:
    """Prints the id of each closing turn record only after `append` has returned."""
    ledger = SqlLedger(Path(where), Path(blobs))
    print("open", flush=True)
    for number in range(start, start + count):
        records = turn(run(), candidate(str(number)), STOCK, 0.5)
        ledger.append(*records)
        print(records[-1].id, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
