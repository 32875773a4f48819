"""`mcp`: open a house, put a desk into it, and let guests in until they are gone or the budget ends."""

import math
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

from reforward.app.agents.desk import Desk
from reforward.app.budget import Budget, parse_seconds
from reforward.app.events import Emit
from reforward.app.optimize import open_run
from reforward.app.settings import Settings

Door = Callable[["Future[Desk]"], AbstractContextManager[Any]]
"""Lets guests in for as long as its block runs; begins before the desk is there, since opening one takes a while."""


def host(
    subject: str, settings: Settings, *, budget: str | None, resume: bool, from_stock: bool, door: Door, emit: Emit
) -> None:
    """Take jobs until the desk is closed or the budget ends. With `resume`, the last run of these settings goes on."""
    limits = Budget(seconds=parse_seconds(budget) if budget else math.inf, screening_share=1)
    coming: Future[Desk] = Future()
    with door(coming):
        try:
            _work(subject, settings, limits, resume, from_stock, coming, emit)
        except BaseException as error:
            if not coming.done():
                coming.set_exception(error)
            raise


def _work(
    subject: str, settings: Settings, budget: Budget, resume: bool, from_stock: bool, coming: "Future[Desk]", emit: Emit
) -> None:
    opened = open_run(subject, settings, emit, resume=resume, from_stock=from_stock, proposers=("inbox",))
    with opened as (house, journal):
        desk = Desk(house, journal, budget, emit)
        coming.set_result(desk)
        desk.work()
