"""The operations of what runs between `start` and `table`, from PyTorch's own profiler."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from torch.profiler import ProfilerActivity, profile

MOST, NAME = 40, 120
"""Operations that are told one by one, and characters of a name."""

Row = tuple[str, int, int]
"""Name, calls, microseconds inside it without what it calls."""


def start() -> profile:
    """A profiler that is noting operations on the processor."""
    made = profile(activities=[ProfilerActivity.CPU])
    made.start()
    return made


def table(running: profile) -> list[Row]:
    """End it; the most expensive operations first, the rest summed up in one row."""
    running.stop()
    found: list[Row] = [
        (event.key[:NAME], event.count, round(event.self_cpu_time_total)) for event in running.key_averages()
    ]
    found.sort(key=lambda row: -row[2])
    rest = found[MOST:]
    more = [(f"({len(rest)} more)", sum(row[1] for row in rest), sum(row[2] for row in rest))] if rest else []
    return found[:MOST] + more
