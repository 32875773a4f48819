"""How often the judge is wrong on this machine: sessions of identical code, and of code that is faster by a known amount.

Each session is one candidate of a run, with a verdict of its own in the ledger. The same command goes on where it was
stopped, until the number of sessions is reached. Every session is ruled as the first of a run, so that all spend alike.
"""

import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from reforward.app.calibrate import calibrated
from reforward.app.events import Emit, Judged
from reforward.app.facts import Rates, Share, share
from reforward.app.house import House, open_house
from reforward.app.journal import TRIALS, Journal
from reforward.app.settings import Settings
from reforward.domain.calibration import Noise
from reforward.domain.candidate import Candidate
from reforward.domain.contract import Contract
from reforward.domain.errors import BadInput
from reforward.domain.measurement import ArmName, Measurement, Sample
from reforward.domain.ports import Idea
from reforward.domain.run import Run
from reforward.domain.subject import Tier
from reforward.domain.verdict import Verdict
from reforward.judge import gain
from reforward.judge.stopping import StandardStopping, outlook
from reforward.ledger.views import every

DRAWS = 2000
"""Sessions that are drawn anew from the pairs of measured ones."""
LEAST_PAIRS = 30
"""Pairs of launches to draw from; fewer say nothing about the tail."""
SLOWED = '''

class Slowed({name}):
    """Takes {percent} more time for each call, waiting busily: a gain of known size for whoever does not."""

    def {method}(self, *args, **kwargs):
        from time import perf_counter_ns
        begun = perf_counter_ns()
        made = super().{method}(*args, **kwargs)
        until = begun + int((perf_counter_ns() - begun) * {factor})
        while perf_counter_ns() < until:
            pass
        return made


{name} = Slowed
'''


def rates(subject: str, settings: Settings, *, tier: Tier, sessions: int, slowdown: float, emit: Emit) -> Rates:
    """Run sessions until there are `sessions` of them, and count."""
    if sessions < 1 or not 0 <= slowdown < 1:
        raise BadInput(f"--sessions must be at least 1 and --slowdown in [0, 1), got {sessions} and {slowdown}")
    with open_house(subject, settings, emit) as opened:
        house = calibrated(opened, emit) if tier == "fast" else opened
        stock = house.loaded.stock
        journal = _journal(house, slowed(stock, slowdown) if slowdown else stock, tier)
        seconds: list[float] = []
        while len(journal.turns) < sessions:
            begun = time.monotonic()
            verdict = _session(house, journal, tier)
            seconds.append(time.monotonic() - begun)
            candidate = renamed(stock, len(journal.turns) - 1)
            emit(
                Judged(
                    candidate=candidate,
                    reason=journal.reason_for(candidate),
                    tier=tier,
                    verdict=verdict,
                    seconds=seconds[-1],
                )
            )
        return _count(house, journal, tier, slowdown, seconds)


def slowed(candidate: Candidate, share: float) -> Candidate:
    """The same forward, taking `share` more time."""
    method = "step" if candidate.host == "lm" else "forward"
    text = SLOWED.format(name=candidate.entry_name, method=method, percent=f"{share:.1%}", factor=1 + share)
    return candidate.with_files({candidate.entry_file: (candidate.text_of(candidate.entry_file) or "") + text})


def renamed(stock: Candidate, number: int) -> Candidate:
    """The same code as another candidate: a comment tells the copies apart."""
    entry = stock.entry_file
    return stock.with_files({entry: f"{stock.text_of(entry)}\n# copy {number}\n"})


def _journal(house: House, base: Candidate, tier: Tier) -> Journal:
    """The last run that asked the same, or a new one."""
    house.ledger.append(base)
    asked = house.new_run(base=base, proposers=(TRIALS, tier))
    same = [old for old in every(house.ledger, Run) if replace(old, started_at=asked.started_at) == asked]
    run = same[-1] if same else asked
    house.ledger.append(run)
    return Journal(house.ledger, run)


def _session(house: House, journal: Journal, tier: Tier) -> Verdict:
    incumbent, number = journal.base, len(journal.turns)
    candidate = renamed(house.loaded.stock, number)
    journal.propose(
        Idea(candidate=candidate, parent=house.loaded.stock.id, author=TRIALS, reason=f"copy {number} of the stock")
    )
    facts, outputs = house.measure(candidate, incumbent, tier, confirmations=0)
    verdict = house.judge(0).rule(facts, outputs, house.contract)
    journal.close_turn(facts, verdict, candidate, incumbent)
    return verdict


def _count(house: House, journal: Journal, tier: Tier, slowdown: float, seconds: Sequence[float]) -> Rates:
    measured = [house.ledger.get(verdict.measurement) for verdict in journal.verdicts]
    found = [facts.samples for facts in measured if isinstance(facts, Measurement)]
    pairs = [pair for samples in found for pair in gain.by_pair(samples)]
    accepted = sum(verdict.ruling == "accept" for verdict in journal.verdicts)
    drawn = None
    if not slowdown and tier == "slow" and len(pairs) >= LEAST_PAIRS:
        drawn = drawn_accepts(pairs, house.contract, random.Random(0))
    return Rates(
        run=journal.run.id,
        tier=tier,
        slowdown=slowdown,
        accepted=share(accepted, len(journal.verdicts)),
        reasons=dict(Counter(verdict.reason for verdict in journal.verdicts).most_common()),
        pairs=len(pairs) / max(1, len(found)),
        session_s=statistics.median(seconds) if seconds else None,
        visible=_visible(found, house.contract, tier),
        drawn=drawn,
    )


def _visible(found: Sequence[Sequence[Sample]], contract: Contract, tier: Tier) -> tuple[tuple[int, float], ...]:
    """What the tier resolves with the noise of all these sessions together."""
    each = [known for known in map(gain.noise, found) if known.freedom]
    freedom = sum(known.freedom for known in each)
    if not freedom:
        return ()
    deviation = math.sqrt(sum(known.freedom * known.deviation**2 for known in each) / freedom)
    known = Noise(deviation=deviation, freedom=freedom)
    return tuple((count, gain.visible(known, contract, tier, count)) for count in gain.ends(contract, tier))


def drawn_accepts(pairs: Sequence[Sequence[Sample]], contract: Contract, draw: random.Random) -> Share:
    """Accepts at the slow tier among `DRAWS` sessions of pairs drawn with replacement, arms swapped by a coin."""
    accepts = 0
    for _ in range(DRAWS):
        rule, made = StandardStopping(contract, "slow", 0), list[Sample]()
        while rule.observe(made) == "continue":
            launch, swap = len(made) and made[-1].launch + 1, draw.random() < 0.5
            made += [
                replace(sample, launch=launch, order=len(made) + place, arm=_other(sample.arm) if swap else sample.arm)
                for place, sample in enumerate(draw.choice(pairs))
            ]
        accepts += outlook(made, contract, "slow", 0).state == "faster"
    return share(accepts, DRAWS)


def _other(arm: ArmName) -> ArmName:
    return "incumbent" if arm == "candidate" else "candidate"
