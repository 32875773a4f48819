"""How reports, histories, traces and checks look on a terminal."""

from collections.abc import Sequence

from rich.markup import escape

from reforward.app.agents.attempts import Tally
from reforward.app.doctor import Check
from reforward.app.optimize import Report
from reforward.app.read import Best, Description, Line
from reforward.app.utilisation import Utilisation
from reforward.cli import show
from reforward.cli.show import console
from reforward.domain.candidate import Candidate
from reforward.domain.measurement import Failed, Measurement
from reforward.domain.record import short
from reforward.domain.verdict import Verdict
from reforward.traffic.summary import Spread, Summary


def report(facts: Report) -> None:
    """What a run came to."""
    console.print()
    console.print(
        f"[bold]{facts.subject}[/] on {facts.machine}; {facts.threads} thread{'s' * (facts.threads != 1)}, {facts.pages} pages"
    )
    scaled = "" if facts.length_scale == 1 else f"; token counts scaled by {facts.length_scale:g}"
    console.print(f"traffic: {facts.workload}{scaled}")
    console.print(f"{facts.screened} candidates screened, {facts.skipped} ideas skipped, in {facts.seconds:.0f} s")
    show.counts(facts.verdicts)
    agreement = "too few in both" if facts.tier_agreement is None else f"{facts.tier_agreement:+.2f}"
    console.print(
        f"screening rate: {facts.candidates_per_hour:.0f} candidates an hour; rank correlation of the tiers: {agreement}"
    )
    if facts.engine:
        utilisation(facts.engine)
    if facts.verdict is None or facts.session is None:
        console.print(f"nothing was proven {facts.contract_gain:.0%} faster than the incumbent; it stays the best")
        return
    console.print(f"best: [bold]{short(facts.best)}[/] {escape(facts.best_reason)}")
    console.print(
        f"gain in work per second, full model on held-out traffic: [bold]{show.percent(facts.verdict.gain)}[/]"
    )
    show.session(facts.session)
    files = ", ".join(f"{path} +{added} -{removed}" for path, added, removed in facts.changed)
    console.print(f"changed against the stock forward: {files}")
    console.print(f"see it: reforward diff {short(facts.best)}; use it: reforward export {short(facts.best)} DIR")


def utilisation(facts: Utilisation) -> None:
    """How an engine's time was spent."""
    bars = "".join(" ▁▂▃▄▅▆▇█"[min(8, round(8 * part))] for part in facts.timeline)
    had = ", ".join(f"{escape(one.author)} {one.seconds:.0f} s" for one in facts.authors)
    built = f"; {facts.build_s:.0f} s of builds beside it" if facts.build_s >= 0.5 else ""
    console.print(f"engine busy {facts.busy_share:.0%} of {facts.seconds:.0f} s: {had or 'for nobody'}{built}")
    console.print(f"  [dim]|[/]{bars}[dim]|[/]")


def answers(prompt: str, texts: dict[str, str]) -> None:
    """One prompt, several forwards."""
    console.print(f"\n[bold]{prompt}[/]")
    for name, text in texts.items():
        console.print(f"  {name:<6} {escape(text)}")
    if len(texts) < 2:
        return
    same = len(set(texts.values())) == 1
    console.print(
        "  [green]the texts are the same[/]" if same else "  the texts differ (rounding may flip a close token)"
    )


def log_rows(lines: Sequence[Line]) -> None:
    """History, one line each, under a header."""
    if not lines:
        console.print("nothing yet; run `reforward demo` or `reforward optimize SUBJECT`")
        return
    width = max(len("subject"), *(len(line.subject) for line in lines))
    console.print(
        f"[dim]{'when (UTC)':<16} {'run':<10} {'subject':<{width}} {'candidate':<10} tier ruling {'reason':<12} "
        f"{'gain [interval]':<26} author: why[/]"
    )
    for line in lines:
        _log_row(line, width)


def _log_row(line: Line, width: int) -> None:
    begin = f"{line.at[:16].replace('T', ' ')} {short(line.run)} {line.subject:<{width}} "
    end = f"{line.author}: {escape(line.reason)}"
    if line.verdict is None:
        console.print(begin + end)
        return
    word = f"[{show.STYLE[line.verdict.ruling]}]{line.verdict.ruling:<6}[/]"
    gain = show.percent(line.verdict.gain) if line.verdict.gain else ""
    console.print(
        f"{begin}{short(line.candidate)} {line.verdict.tier} {word} {line.verdict.reason:<12} {gain:<26} {end}"
    )


def attempt_rows(attempts: Sequence[Tally]) -> None:
    """Agents, one line each."""
    header = [
        "run",
        "author",
        "ruled",
        "accepted",
        "best gain",
        "seconds",
        "calls",
        "tokens in/out",
        "usd",
        "usd/%",
        "ended",
    ]
    lines = [
        [
            short(one.run),
            escape(one.author),
            str(one.ruled),
            str(one.accepted),
            "-" if one.best_gain is None else f"{one.best_gain:+.1%}",
            "-" if one.seconds is None else f"{one.seconds:.0f}",
            str(one.calls or "-"),
            f"{one.tokens_in}/{one.tokens_out}" if one.calls else "-",
            "-" if one.usd is None else f"{one.usd:.3g}",
            "-" if one.usd_per_percent is None else f"{one.usd_per_percent:.3g}",
            escape(one.how),
        ]
        for one in attempts
    ]
    show.rows(header, lines) if lines else console.print("no agent has worked here yet; see optimize --agent")


def description(facts: Description) -> None:
    """One record and what refers to it."""
    console.print(f"[bold]{facts.id}[/]")
    for line in facts.setting:
        console.print(escape(line))
    if facts.setting:
        log_rows(facts.lines)
    elif isinstance(facts.record, Candidate):
        for file in facts.record.files:
            console.print(f"  {file.path}: {len(file.text.splitlines())} lines")
    elif not isinstance(facts.record, (Verdict, Failed, Measurement)):
        show.as_json(facts.record)
    for proposal in facts.proposals:
        console.print(f"proposed by {proposal.author} from {short(proposal.parent)}: {escape(proposal.reason)}")
    if facts.session:
        show.session(facts.session)
    for verdict in _verdicts(facts):
        console.print(f"verdict {short(verdict.id)} on candidate {short(verdict.candidate)}, {verdict.tier} tier:")
        show.verdict_details(verdict)
    for failed in facts.failures:
        console.print(f"log of failure {short(failed.id)}, {failed.tier} tier, stage {failed.stage}:")
        console.print(f"[dim]{escape(failed.log.rstrip()) or 'empty'}[/]")


def _verdicts(facts: Description) -> Sequence[Verdict]:
    return (facts.record,) if isinstance(facts.record, Verdict) else facts.verdicts


def best_rows(rows: Sequence[Best]) -> None:
    """The best of each target."""
    for row in rows:
        console.print(f"{row.subject.name}: [bold]{short(row.candidate)}[/] {escape(row.reason)}")
        console.print(f"{row.target.machine.cpu}, {row.target.launch.words}: {show.percent(row.verdict.gain)}")
        show.session(row.session)


def trace_facts(facts: Summary) -> None:
    """A trace in a few lines."""
    failed = f", {facts.failed} failed calls" if facts.failed else ""
    torn = f", {facts.torn} files end in the middle of a line" if facts.torn else ""
    guessed = f", {facts.estimated} requests of estimated length" if facts.estimated else ""
    bad = f"{facts.bad_rows} bad rows{failed}{guessed}{torn}"
    console.print(f"{facts.source}: {facts.requests} requests over {facts.duration_s:.0f} s, {bad}")
    if facts.unsorted:
        console.print(f"{facts.unsorted} rows were not in order of time; they were sorted")
    spreads: list[tuple[str, Spread]] = [("prompt tokens", facts.prompt), ("output tokens", facts.output)]
    if facts.company:
        spreads.append(("requests in service", facts.company))
    lines = [[n, *(f"{v:.0f}" for v in (s.p5, s.p50, s.p95, s.mean, s.max))] for n, s in spreads]
    show.rows(["", "p5", "p50", "p95", "mean", "max"], lines)
    numbers = {
        "requests a second": facts.rate_per_s,
        "gaps, coefficient of variation (1 = Poisson)": facts.gap_cv,
        "counts a minute, variance over mean (1 = Poisson)": facts.dispersion_minute,
        "busiest minute, requests": facts.peak_minute,
    }
    if facts.reuse is not None:
        numbers["prompt tokens that earlier prompts began with, share"] = facts.reuse
    for name, value in numbers.items():
        console.print(f"{name}: {'too few rows to say' if value is None else f'{value:.3g}'}")


def checks(found: Sequence[Check]) -> None:
    """What is there, what is missing, and the remedy."""
    for check in found:
        mark = "[green]ok  [/]" if check.ok else "[red]fail[/]" if check.required else "[yellow]none[/]"
        console.print(f"{mark} {check.name}: {escape(check.detail)}")
        if not check.ok and check.remedy:
            console.print(f"       remedy: {escape(check.remedy)}")
