"""Remakes src/reforward/plan/residual.json from measured serving points; about two minutes on one core.

python bench/plan_fit.py FOLDER    folder with silicon_sample.csv and aic_0.12.0_baseline_predictions.csv; needs reforward[plan]
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from plan_learn import exported
from plan_points import planned
from plan_rows import clean, load
from reforward.plan.residual import MOST, PACKAGED

SOURCE = (
    "scikit-learn boosted trees fitted by bench/plan_fit.py to silicon_sample.csv of aiconfigurator-core 0.12.0 "
    "(Apache-2.0, NVIDIA), most of it from InferenceX (Apache-2.0, SemiAnalysis)"
)


def main() -> None:
    """Fit on all rows that count, write."""
    rows = clean(load(Path(sys.argv[1]))).set_index("id")
    found = planned(rows.reset_index()).loc[rows.index]
    names = [name for name in found if name not in ("tpot_s", "ttft_s")]
    sizes = found[names].to_numpy(dtype=np.float64)
    groups = (rows.architecture + "|" + rows.system).to_numpy()
    document = {
        "source": SOURCE,
        "rows": len(rows),
        "features": names,
        "tpot": exported(sizes, _ratio(rows.silicon_tpot_ms, found.tpot_s), groups, MOST["tpot"]),
        "ttft": exported(sizes, _ratio(rows.silicon_ttft_ms, found.ttft_s), groups, MOST["ttft"]),
    }
    PACKAGED.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")


def _ratio(measured_ms: pd.Series, planned_s: pd.Series) -> np.ndarray:
    return np.log(measured_ms.to_numpy() / 1e3 / planned_s.to_numpy())


if __name__ == "__main__":
    main()
