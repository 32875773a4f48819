"""Writes bench/plan_folds.csv: the fold of every row that counts, fixed before anything is fitted.

python bench/plan_folds.py FOLDER    folder with silicon_sample.csv and aic_0.12.0_baseline_predictions.csv
"""

import sys
from pathlib import Path

from plan_rows import clean, load

FOLDS = Path(__file__).with_name("plan_folds.csv")


def main() -> None:
    """One line per row: its id, architecture and system. A fold is a pair of the last two."""
    rows = clean(load(Path(sys.argv[1])))
    rows[["id", "architecture", "system"]].to_csv(FOLDS, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
