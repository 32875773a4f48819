"""How noisy this machine is now: the stock forward against itself, kept in the ledger, measured again when it is old."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from reforward.app.events import Calibrated, Emit, Working
from reforward.app.house import House
from reforward.domain.calibration import Calibration
from reforward.domain.errors import EngineLost
from reforward.domain.measurement import Failed, Sample
from reforward.domain.subject import Tier
from reforward.judge import gain
from reforward.ledger.views import every
from reforward.models.shapes import step_elements

PAIRS = 8
"""Pairs of launches of one calibration: seven degrees of freedom, a deviation good to about a quarter."""
VALID = timedelta(hours=1)
"""A machine's noise comes from its neighbours, and they change."""


class FixedPairs:
    """A `Stopping` that looks at nothing but the count."""

    def __init__(self, count: int) -> None:
        self.count = count

    def observe(self, samples: Sequence[Sample]) -> Literal["continue", "stop"]:
        """Asked after each completed pair of launches."""
        return "stop" if len(gain.pairs(samples)) >= self.count else "continue"


def calibrated(house: House, emit: Emit) -> House:
    """The house with the noise of its fast tier, from the ledger if that is fresh, else measured now."""
    known = fresh(house) or calibrate(house, emit)
    ends = gain.ends(house.contract, "fast")
    visible = tuple((count, gain.visible(known.noise, house.contract, "fast", count)) for count in ends)
    emit(Calibrated(calibration=known, visible=visible))
    return replace(house, noise=known.noise, floors=floors(house, known))


def floors(house: House, known: Calibration) -> dict[Tier, float]:
    """Least seconds per decoded token, by tier: what a step must read and no cache can hold, shared by all in flight.

    An element counts as one byte, whatever its type: a candidate may pack the weights tighter where nothing is lost.
    """
    spec, subject = house.engine.spec, house.loaded.subject
    if spec is None:
        return {}
    tiers: tuple[Tier, ...] = ("fast", "slow")
    read = {tier: max(0, step_elements(spec, subject.depth_of(tier)) - known.cache_bytes) for tier in tiers}
    return {tier: read[tier] / known.read_bytes_s / house.workload.concurrency for tier in tiers}


def fresh(house: House) -> Calibration | None:
    """The last calibration of this target and workload that is still valid."""
    since = (datetime.now(UTC) - VALID).isoformat(timespec="seconds")
    wanted = (house.engine.target.id, house.traffic.search.id)
    found = [
        known
        for known in every(house.ledger, Calibration)
        if (known.target, known.workload) == wanted and known.made_at > since
    ]
    return found[-1] if found else None


def calibrate(house: House, emit: Emit) -> Calibration:
    """One A/A session at the fast tier; the measurement and what it told are appended."""
    emit(Working(what=f"how noisy is this machine? {PAIRS} pairs of launches of the stock forward against itself"))
    stock, workload, begun = house.loaded.stock, house.traffic.search, time.monotonic()
    facts, _ = house.measurer.measure(stock, stock, workload, "fast", FixedPairs(PAIRS))
    if isinstance(facts, Failed):
        raise EngineLost(f"the stock forward failed at {facts.stage}: {facts.reason}; {facts.log}")
    read = house.engine.bandwidth()
    made = Calibration(
        tier="fast",
        target=facts.target,
        workload=facts.workload,
        measurement=facts.id,
        noise=gain.noise(facts.samples),
        bias=gain.estimate(facts.samples).mean,
        pair_s=(time.monotonic() - begun) / PAIRS,
        read_bytes_s=read.read_bytes_s,
        cache_bytes=read.cache_bytes,
        made_at=facts.started_at,
    )
    house.ledger.append(facts, made)
    return made
