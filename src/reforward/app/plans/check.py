"""`reforward plan check`: a plan that was kept and the times of requests that were served by it, read and compared."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np

from reforward.app.plans.ask import Wanted, put
from reforward.domain.errors import BadInput
from reforward.plan.calibrate import Measured
from reforward.plan.check import Checked
from reforward.plan.check import check as compare
from reforward.plan.engine import Limits
from reforward.plan.layout import Layout
from reforward.plan.replay import Schedule
from reforward.plan.traffic import Traffic

OURS = ("arrival_s", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s")
ENGINES = ("arrival_time", "input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")
FORMS = f"one JSON object a line with {', '.join(OURS)}, or with {', '.join(ENGINES)} (and scheduled_ts)"


def check(plan: Path, results: Path, row: int = 1) -> Checked:
    """Compare row `row` of a plan with the requests of one replica."""
    kept = _plan(plan)
    choices = kept["choices"]
    if not 1 <= row <= len(choices):
        raise BadInput(f"{plan} has {len(choices)} rows, so there is no row {row}")
    choice = choices[row - 1]
    if "(" in choice["layout"]:
        raise BadInput(f"row {row} of {plan} has replicas of two roles, {choice['layout']}; check a row of one layout")
    layout = Layout.parse(choice["layout"])
    if layout.pp > 1:
        raise BadInput(
            f"row {row} of {plan} has pipeline stages, {layout}, which are replayed one by one; check another row"
        )
    traffic, measured = read_results(results)
    wanted = Wanted(
        model=kept["model"], gpu=kept["gpu"], gpus=kept["gpus"], engine=kept["engine"], traffic="1/1",
        dtype=kept["asked_dtype"], kv_dtype=kept["asked_kv_dtype"],
        gpu_spec=Path(kept["gpu_spec"]) if kept["gpu_spec"] else None,
    )  # fmt: skip
    question = put(wanted)
    priced = question.price(question.model, question.gpu, layout, question.engine)
    limits = Limits(max_num_seqs=choice["max_num_seqs"], max_num_batched_tokens=choice["max_num_batched_tokens"])
    schedule = Schedule(limits=limits, blocks=choice["kv_blocks"], ranks=layout.dp, overlap=1)
    return compare(priced.steps, schedule, traffic, measured)


def _plan(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["choices"]:
            return found
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{path} is no plan; write one with: reforward plan MODEL … -o plan.json") from None
    raise BadInput(f"the plan {path} has no rows, since nothing fitted; there is nothing to check")


def read_results(path: Path) -> tuple[Traffic, Measured]:
    """Requests in order of arrival. Clocks that begin elsewhere are aligned where a request waited least."""
    rows = [_row(path, number, line) for number, line in enumerate(path.read_text().splitlines(), 1) if line.strip()]
    if not rows:
        raise BadInput(f"{path} holds no requests; it needs {FORMS}")
    rows.sort(key=lambda row: row[0])
    table = np.array(rows)
    arrival, offset = table[:, 0] - table[0, 0], float((table[:, 3] - table[:, 0]).min()) + table[0, 0]
    traffic = Traffic(
        arrival=arrival, prompt=table[:, 1].astype(np.int64), output=table[:, 2].astype(np.int64), source=path.name
    )
    times = table[:, 4:] - offset
    return traffic, Measured(scheduled=times[:, 0], first=times[:, 1], last=times[:, 2])


def _row(path: Path, number: int, line: str) -> tuple[float, ...]:
    """(arrival, prompt, output, queued, scheduled, first, last), seconds."""
    try:
        row = cast(dict[str, float], json.loads(line))
        if all(key in row for key in OURS):
            arrival = float(row["arrival_s"])
            first, last = arrival + row["ttft_s"], arrival + row["e2e_s"]
            return (arrival, row["prompt_tokens"], row["output_tokens"], arrival, float("nan"), first, last)
        arrival, prompt, output, queued, first, last = (float(row[key]) for key in ENGINES)
        return (arrival, prompt, output, queued, float(row.get("scheduled_ts", "nan")), first, last)
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path}, line {number}: {error!r}; it needs {FORMS}") from None
