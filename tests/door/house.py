"""A desk over the scripted house, at work in a thread, with a ledger on disk."""

import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from app.house import scripted_house
from reforward.app.agents.desk import Desk
from reforward.app.budget import Budget
from reforward.app.events import ignore
from reforward.app.journal import Journal
from reforward.domain.run import Run
from reforward.engine.scripted import Pace, Role, scripted_candidate
from reforward.ledger.store import SqlLedger
from reforward.ledger.views import every

QUICK, QUICKER, SLOW, BROKEN = (scripted_candidate(name) for name in ("quick", "quicker", "slow", "broken"))
ROLES = {
    QUICK.id: Role(pace=Pace(step_s=0.008)),
    QUICKER.id: Role(pace=Pace(step_s=0.005)),
    SLOW.id: Role(pace=Pace(step_s=0.02)),
    BROKEN.id: Role(fails=("run", 2)),
}


def make_desk(folder: Path, budget: Budget | None = None) -> Desk:
    """A desk that nobody works at yet, on the run of this folder's ledger, begun now if there is none."""
    ledger = SqlLedger(folder / "ledger.db", folder / "blobs")
    house = scripted_house(ROLES, ledger)
    runs = every(ledger, Run)
    run = runs[-1] if runs else house.new_run(base=house.loaded.stock, proposers=("inbox",))
    ledger.append(run)
    return Desk(house, Journal(ledger, run), budget or Budget(seconds=600, screening_share=1), ignore)


def opened(desk: Desk) -> "Future[Desk]":
    """A desk that is there."""
    coming: Future[Desk] = Future()
    coming.set_result(desk)
    return coming


@contextmanager
def at_work(desk: Desk) -> Generator[Desk]:
    """Jobs are done until the block ends."""
    worker = threading.Thread(target=desk.work)
    worker.start()
    try:
        yield desk
    finally:
        desk.close()
        worker.join(timeout=60)
        assert not worker.is_alive()
