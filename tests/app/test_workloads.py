"""The scale of a workload: affordable, never so small that a request is all overhead, and taken again when a run goes on."""

from collections.abc import Sequence

import pytest

from reforward.app.settings import Settings
from reforward.app.subjects import Loaded
from reforward.app.workloads import LEAST_OUTPUT, Observed, Traffic, choose_scale, observed, workloads
from reforward.domain.workload import Request, Workload
from reforward.engine.cpu import Source
from reforward.engine.scripted import ScriptedEngine, tiny_subject


def window(prompt: int, output: int) -> list[Request]:
    return [Request(arrival_s=float(at), prompt_tokens=prompt, output_tokens=output) for at in range(8)]


@pytest.mark.parametrize(
    ("decode_s", "scale"),
    [
        (0.001, 1.0),
        (0.01, 0.25),
        (0.02, 0.125),
        (10.0, 0.04),
    ],
)
def test_a_slow_machine_gets_shorter_requests_down_to_a_floor(decode_s: float, scale: float) -> None:
    assert choose_scale(window(1000, 200), 6, 0.0, decode_s, positions=8192) == scale
    assert scale * 200 >= LEAST_OUTPUT


def test_what_does_not_fit_the_model_is_scaled_below_the_floor() -> None:
    assert choose_scale(window(1000, 24), 6, 0.0, 0.0, positions=256) == 0.25


def test_short_requests_are_warned_of() -> None:
    def traffic(output: int) -> Traffic:
        requests = tuple(window(40, output))
        work = Workload(name="w", source="s", requests=requests, weights=(1.0,) * 8, length_scale=1 / 128)
        return Traffic(search=work, held_out=work)

    assert "2.0 output tokens on average" in traffic(2).warning()
    assert "--length-scale (it is 0.0078125)" in traffic(2).warning()
    assert traffic(LEAST_OUTPUT).warning() == ""


def loaded() -> tuple[Loaded, ScriptedEngine]:
    subject, spec, stock = tiny_subject()
    return Loaded(subject=subject, stock=stock, source=Source(), spec=spec), ScriptedEngine(subject, spec, {})


def distilled(settings: Settings, known: Sequence[Workload] = ()) -> Traffic:
    house, engine = loaded()
    return workloads(house, engine, settings, observed(settings), known)


def test_a_run_that_goes_on_takes_the_scale_that_was_chosen_for_it() -> None:
    earlier = distilled(Settings(length_scale=0.03, requests=4))
    other = distilled(Settings(length_scale=0.05, requests=3))
    again = distilled(Settings(requests=4), (other.search, earlier.search))
    assert again == earlier, "the scale of the run of four requests, not of the newer one, and no probe"


def test_the_traffic_is_read_once_and_described() -> None:
    seen = observed(Settings())
    assert isinstance(seen, Observed)
    assert "Azure LLM inference trace 2023" in distilled(Settings(length_scale=0.05)).describe()
