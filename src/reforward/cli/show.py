"""How facts look on a terminal. No logic: each function prints one kind of fact."""

import json
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reforward.app.events import Calibrated, Judged
from reforward.app.facts import ArmFacts, Median, Rates, SessionFacts, Share
from reforward.domain.record import canonical_json, short
from reforward.domain.verdict import Finding, Interval, Verdict

console = Console(highlight=False, soft_wrap=True)
errors = Console(highlight=False, soft_wrap=True, stderr=True)
STYLE = {"accept": "green", "reject": "red", "unsure": "yellow"}


def as_json(value: object) -> None:
    """Any record or fact as indented JSON on stdout."""
    print(json.dumps(json.loads(canonical_json(value)), indent=2))


def percent(gain: Interval | None) -> str:
    """`+25.1 % [+22.0, +28.3]`, or a dash."""
    if gain is None:
        return "-"
    return f"{100 * gain.mid:+.1f} % [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"


def noise_line(to: Console, event: Calibrated) -> None:
    """How much identical code differs here, and so what screening can see."""
    noise = event.calibration.noise
    to.print(
        f"  noise of this machine: identical code differs by {noise.deviation:.1%} from pair to pair of launches; "
        f"screening sees a gain of {_sees(event.visible)}; memory is read at {event.calibration.read_bytes_s / 1e9:.1f} GB/s"
    )


def _sees(visible: tuple[tuple[int, float], ...]) -> str:
    return " or ".join(f"{gain:.{0 if gain >= 0.05 else 1}%} after {count} pairs" for count, gain in visible)


def verdict_line(to: Console, event: Judged, *, details: bool = True) -> None:
    """One line per judged candidate; of its reason the headline, which ends at the first colon."""
    verdict = event.verdict
    word = f"[{STYLE[verdict.ruling]}]{verdict.ruling:<6}[/]"
    gain = "" if verdict.gain is None else f" {percent(verdict.gain)}"
    to.print(
        f"  {verdict.tier:<4} {word} {verdict.reason:<12}{gain:<26} {event.seconds:5.1f} s  {short(verdict.candidate)}  "
        f"{escape(event.reason.partition(': ')[0])}"
    )
    if details and verdict.reason in {"failed", "numerics", "token-mismatch", "shape", "non-finite", "memory"}:
        to.print(f"       [dim]{escape(verdict.detail)}[/]")


def verdict_details(verdict: Verdict) -> None:
    """Ruling, reason in words, and every check with its number."""
    console.print(f"[{STYLE[verdict.ruling]}]{verdict.ruling}[/] ({verdict.reason}): {escape(verdict.detail)}")
    if any(finding.check == "bits" and not finding.passed for finding in verdict.findings):
        console.print("the contract was bit-exact; `--numerics reassociated` allows another order of summation")
    table = Table("check", "value", "must be", "", box=None)
    for finding in verdict.findings:
        mark = "[green]ok[/]" if finding.passed else "[red]broken[/]"
        table.add_row(finding.check, f"{finding.value:.4g}", f"{direction(finding)} {finding.limit:.4g}", mark)
    if verdict.findings:
        console.print(table)


def direction(finding: Finding) -> str:
    """`at most` or `at least`, read off a finding: its limit is a bound from above exactly if lying below it passes."""
    below = finding.value < finding.limit or (finding.value == finding.limit == 0)
    return "at most" if below == finding.passed else "at least"


def session(facts: SessionFacts) -> None:
    """Incumbent and candidate side by side, with intervals."""
    table = Table("", "incumbent", "candidate", "ratio", box=None)
    rows: list[tuple[str, Median | None, Median | None, bool]] = [
        ("decode tok/s", facts.incumbent.decode_tok_s, facts.candidate.decode_tok_s, True),
        ("TTFT s", facts.incumbent.ttft_s, facts.candidate.ttft_s, False),
        ("pass s", facts.incumbent.pass_s, facts.candidate.pass_s, False),
    ]
    for name, old, new, more_is_better in rows:
        if old is not None and new is not None:
            ratio = new.value / old.value if more_is_better else old.value / new.value
            table.add_row(name, interval(old), interval(new), f"{ratio:.2f}x")
    for name, read in _COSTS.items():
        table.add_row(name, read(facts.incumbent), read(facts.candidate), "")
    table.add_row("weights MB, shared", f"{facts.weights_bytes / 1e6:.0f}", "the same", "")
    console.print(table)
    console.print(f"[dim]median [95 % interval of the median]; {facts.launches} pairs of fresh launches[/]")


_COSTS: dict[str, Callable[[ArmFacts], str]] = {
    "swap s (frozen to ready)": lambda arm: f"{arm.load_s:.2f}",
    "build s / pack s, now": lambda arm: f"{arm.build_s:.1f} / {arm.pack_s:.1f}",
    "packed MB": lambda arm: f"{arm.packed_bytes / 1e6:.0f}",
    "private MB, peak": lambda arm: f"{arm.private_bytes / 1e6:.0f}",
}


def interval(value: Median) -> str:
    """`14.2 [13.9, 14.4]` with digits that fit the size."""
    digits = 1 if value.value >= 10 else 3
    return f"{value.value:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def rates(found: Rates) -> None:
    """Error rates, or power, of the judge."""
    kind = f"incumbent slowed by {found.slowdown:.1%}" if found.slowdown else "identical code"
    console.print(f"{found.tier} tier, {kind}: {_share(found.accepted, power=found.slowdown > 0)} accepted")
    counts(found.reasons)
    seconds = "" if found.session_s is None else f", {found.session_s:.1f} s"
    console.print(f"to a ruling: {found.pairs:.1f} pairs of launches{seconds}")
    if found.visible:
        console.print(f"seen every other time in the noise of these sessions: a gain of {_sees(found.visible)}")
    if found.drawn:
        console.print(f"drawn anew from these pairs: {_share(found.drawn)} accepted")


def _share(share: Share, *, power: bool = False) -> str:
    """With the bound that one asks for: errors are at most so many, what is seen is at least so much."""
    bound = f"at least {share.at_least:.1%}" if power else f"at most {share.at_most:.2%}"
    return f"{share.count} of {share.of} ({share.count / share.of:.1%}; {bound}, one-sided 95 %)"


def counts(numbers: dict[str, int]) -> None:
    """Verdicts by tier, ruling and reason."""
    console.print("  ".join(f"{name}: {number}" for name, number in numbers.items()) or "none")


def rows(header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """A plain table."""
    table = Table(*header, box=None)
    for line in lines:
        table.add_row(*line)
    console.print(table)


__all__ = [
    "ArmFacts",
    "as_json",
    "console",
    "counts",
    "direction",
    "errors",
    "interval",
    "noise_line",
    "percent",
    "rates",
    "rows",
    "session",
    "verdict_details",
    "verdict_line",
]
