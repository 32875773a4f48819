"""Where step times come from, and what is said of them."""

from pathlib import Path

import numpy as np
import pytest

from reforward.domain.errors import BadInput
from reforward.plan.engine import Engine
from reforward.plan.gpu import Gpu
from reforward.plan.layout import Layout
from reforward.plan.model import Model
from reforward.plan.price import GUESS_SPREAD, KNOWN_SPREAD, Pricing, pricing

LLAMA, TP2 = Model.read("Meta-Llama-3.1-8B"), Layout(tp=2)


def test_a_gpu_without_tables_gets_wide_intervals_and_is_told_so() -> None:
    known = Pricing()(LLAMA, Gpu.read("h200"), TP2, Engine())
    guessed = Pricing()(LLAMA, Gpu.read("mi300x"), TP2, Engine())
    assert (known.decode_spread, guessed.decode_spread) == (KNOWN_SPREAD, GUESS_SPREAD)
    assert "measured operators" in known.about
    assert "the datasheet alone, so the intervals are wide" in guessed.about


def test_terms_add_up_and_nothing_is_nothing() -> None:
    steps = Pricing()(LLAMA, Gpu.read("h200"), TP2, Engine()).steps
    batch = np.array([1.0, 16.0, 64.0])
    parts = steps.terms(100.0, 50.0, batch, 500.0)
    np.testing.assert_allclose(sum(parts.values()), steps.mixed_s(100.0, 50.0, batch, 500.0))
    assert float(steps.mixed_s(0.0, 0.0, 1.0, 1.0)) == pytest.approx(float(steps.decode_s(1.0, 1.0)))
    alone = steps.terms(0.0, 0.0, 8.0, 500.0)
    assert float(alone["prefill attention"]) == 0
    assert (np.diff(steps.decode_s(batch, 500.0)) > 0).all()


def test_factors_multiply_their_terms(tmp_path: Path) -> None:
    path = tmp_path / "factors.json"
    path.write_text('{"factors": {"mlp": 2.0}}')
    plain = Pricing()(LLAMA, Gpu.read("h200"), TP2, Engine()).steps.terms(0.0, 0.0, 8.0, 500.0)
    priced = pricing(path)(LLAMA, Gpu.read("h200"), TP2, Engine())
    scaled = priced.steps.terms(0.0, 0.0, 8.0, 500.0)
    assert {name: float(scaled[name] / plain[name]) for name in ("mlp", "head")} == {"mlp": 2.0, "head": 1.0}
    assert priced.about.endswith("corrected by factors.json")


@pytest.mark.parametrize(
    ("text", "says"), [("[]", "is no calibration"), ('{"factors": {"mlp": -1}}', "not negative, got"), ("{", "is no")]
)
def test_a_calibration_that_is_none_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "factors.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=says):
        pricing(path)


def test_how_sure_follows_what_served_points_were_off_by() -> None:
    dense = Pricing()(LLAMA, Gpu.read("h200"), TP2, Engine()).decode_spread
    mixture = Pricing()(Model.read("DeepSeek-V3.2"), Gpu.read("b200"), Layout(tp=8), Engine()).decode_spread
    assert KNOWN_SPREAD <= dense < mixture < 2 * KNOWN_SPREAD
