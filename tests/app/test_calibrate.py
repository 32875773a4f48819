"""The noise of a machine: measured once, kept, used by screening, measured again when it is old."""

from dataclasses import replace

import pytest

from app.house import scripted_house
from reforward.app import calibrate
from reforward.app.calibrate import PAIRS, calibrated, fresh
from reforward.app.events import Calibrated, Event, Working
from reforward.app.house import House
from reforward.domain.calibration import Calibration
from reforward.domain.measurement import Measurement
from reforward.ledger.views import every, only
from reforward.measure.measurer import utc_now
from reforward.models.shapes import step_elements


def house_of_today() -> House:
    house = scripted_house({})
    house.measurer.now = utc_now
    return house


def test_a_calibration_is_kept_and_used_again() -> None:
    house, events = house_of_today(), list[Event]()
    first = calibrated(house, events.append)
    again = calibrated(house, events.append)
    assert first.noise == again.noise is not None
    assert [type(event) for event in events] == [Working, Calibrated, Calibrated]
    known = only(house.ledger.get(every(house.ledger, Calibration)[0].id), Calibration)
    facts = only(house.ledger.get(known.measurement), Measurement)
    assert facts.candidate.candidate == facts.incumbent.candidate == house.loaded.stock.id
    assert len({sample.launch for sample in facts.samples}) == PAIRS
    assert known.noise.freedom == PAIRS - 1


def test_an_old_calibration_is_measured_again(monkeypatch) -> None:
    house = house_of_today()
    calibrated(house, lambda event: None)
    assert fresh(house) is not None
    monkeypatch.setattr(calibrate, "VALID", -calibrate.VALID)
    assert fresh(house) is None


def test_what_screening_sees_shrinks_with_more_pairs() -> None:
    events = list[Event]()
    calibrated(house_of_today(), events.append)
    (seen,) = (event for event in events if isinstance(event, Calibrated))
    (few, less), (many, more) = seen.visible
    assert few < many
    assert less >= more > 0


def test_a_floor_counts_what_a_step_must_read_and_no_cache_holds() -> None:
    house = house_of_today()
    known = calibrate.calibrate(house, lambda event: None)
    spec = house.engine.spec
    assert spec is not None
    matrices = step_elements(spec, house.loaded.subject.depth)
    uncached = replace(known, read_bytes_s=1e6, cache_bytes=0)
    assert calibrate.floors(house, uncached)["slow"] * 1e6 * house.workload.concurrency == pytest.approx(matrices)
    assert calibrate.floors(house, replace(known, cache_bytes=matrices))["slow"] == 0
    assert calibrate.floors(house, uncached)["fast"] < calibrate.floors(house, uncached)["slow"]
