"""What guests of a desk may read: where the run stands, what was tried, sources, differences, and the brief."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources

from reforward.app import diffs
from reforward.app.agents import public
from reforward.app.agents.desk import Desk
from reforward.app.agents.public import Tried
from reforward.app.journal import BEGAN
from reforward.app.utilisation import Share
from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.errors import BadInput
from reforward.domain.job import Kind
from reforward.domain.record import short
from reforward.judge.ruling import percent
from reforward.propose.brief import Facts, render

MOST_LINES = 2000
CONTRACTS = {"lm": "forward.py", "module": "module.py"}
"""What a candidate must export, by host: a file of `reforward.runtime`."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """Where a run stands."""

    subject: str
    about: str
    """What is measured, on what."""
    machine: str
    stock: str
    incumbent: str
    """What the asker works against."""
    incumbent_reason: str
    screened: int
    confirmed: int
    accepted: int
    running: str
    """What the engine does now; empty if it waits."""
    waiting: int
    shares: tuple[Share, ...]
    elapsed_s: float
    busy_s: float
    """Of them the engine worked for somebody."""
    left_s: float | None
    """Seconds until the run ends; None if it has no end."""
    open: bool
    """It takes jobs."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Lines of one file of a candidate."""

    of: str
    path: str
    paths: tuple[str, ...]
    """All files that can be asked for."""
    first: int
    lines: int
    """In the whole file."""
    text: str


def status(desk: Desk, author: str = "") -> Status:
    """Where the run stands."""
    incumbent = desk.incumbent(author)
    house, journal, elapsed = desk.house, desk.journal, desk.cycle.elapsed_s
    target, left = house.engine.target, desk.budget.left(elapsed)
    running, shares = desk.running, desk.shares()
    return Status(
        subject=house.loaded.subject.name,
        about=house.describe(),
        machine=f"{target.machine.words}; {target.launch.words}",
        stock=house.loaded.stock.id,
        incumbent=incumbent.id,
        incumbent_reason=BEGAN if incumbent.id == journal.base.id else journal.reason_for(incumbent),
        screened=journal.screened,
        confirmed=journal.confirmed,
        accepted=len(journal.accepted),
        running=f"{running.kind} {short(running.candidate)}" if running else "",
        waiting=sum(share.waiting for share in shares),
        shares=shares,
        elapsed_s=elapsed,
        busy_s=sum(span.seconds for span in desk.spans),
        left_s=None if left == float("inf") else max(0.0, left),
        open=not (desk.closed or desk.over),
    )


def history(desk: Desk, author: str = "", limit: int = 50) -> tuple[Tried, ...]:
    """What was ruled in this run, oldest first, the newest `limit` of it: by all authors if they share, else by this one."""
    journal, ledger = desk.journal, desk.house.ledger
    proposals = {proposal.id: proposal for proposal in journal.proposals}
    turns = [(proposals[turn.proposal], v) for turn, v in zip(journal.turns, journal.verdicts, strict=False)]
    shown = [row for row in turns if desk.share or row[0].author == author]
    return tuple(public.tried(ledger, *row) for row in (shown[-limit:] if limit > 0 else []))


def difference(desk: Desk, a: str, b: str, author: str = "") -> str:
    """Unified diff from candidate `b` to candidate `a`."""
    return diffs.unified(candidate(desk, b, author), candidate(desk, a, author))


def source(
    desk: Desk, of: str = "incumbent", path: str = "", first: int = 1, count: int = MOST_LINES, author: str = ""
) -> Source:
    """Lines of a file of a candidate; its entry file if no path is given. `of` may be `contract`: what it must export."""
    files, entry = _files(desk, of, author)
    path = path or entry
    if path not in files:
        raise BadInput(f"{of!r} has no file {path!r}; it has {', '.join(sorted(files))}")
    lines = files[path].splitlines(keepends=True)
    text = "".join(lines[max(0, first - 1) : max(0, first - 1) + min(count, MOST_LINES)])
    return Source(of=of, path=path, paths=tuple(sorted(files)), first=first, lines=len(lines), text=text)


def _files(desk: Desk, of: str, author: str) -> tuple[dict[str, str], str]:
    if of == "contract":
        name = CONTRACTS[desk.house.loaded.subject.host]
        return {name: resources.files("reforward.runtime").joinpath(name).read_text(encoding="utf-8")}, name
    found = candidate(desk, of, author)
    return {file.path: file.text for file in found.files}, found.entry_file


def candidate(desk: Desk, name: str, author: str = "") -> Candidate:
    """`stock`, `incumbent`, or a candidate by id or the first digits of its hash."""
    if name == "stock":
        return desk.house.loaded.stock
    if name == "incumbent":
        return desk.incumbent(author)
    record = desk.house.ledger.find(name)
    if not isinstance(record, Candidate):
        raise BadInput(f"{name!r} is a {record.tag}, not a candidate; the history names candidates")
    if not desk.is_shown(record, author):
        raise BadInput(f"{name!r} is another author's, and this run does not share; the history names what is yours")
    return record


def tree(desk: Desk, files: Mapping[str, str], base: str = "", author: str = "") -> Candidate:
    """A guest's candidate: the files alone, or laid over those of the candidate `base`."""
    stock = desk.house.loaded.stock
    if base:
        return candidate(desk, base, author).with_files(dict(files))
    if stock.entry_file not in files:
        raise BadInput(
            f"the tree has no {stock.entry_file}, which must export {stock.entry_name}; send it, or say "
            "base='stock' or base='incumbent' to change only some files"
        )
    made = tuple(SourceFile(path=path, text=files[path]) for path in sorted(files))
    return Candidate(host=stock.host, entry=stock.entry, files=made)


def wanted_tree(desk: Desk, kind: Kind, files: Mapping[str, str], base: str, author: str) -> Candidate:
    """`tree`, of which a refusal is recorded."""
    try:
        return tree(desk, files, base, author)
    except BadInput as error:
        desk.refuse(kind, author, error)
        raise


def brief(desk: Desk, author: str = "", door: str = "", playbook: str = "") -> str:
    """What a guest is told before it begins, as text. `door` is its own address, if it has one."""
    house = desk.house
    left = desk.budget.left(desk.cycle.elapsed_s)
    facts = Facts(
        contract_source=source(desk, "contract").text,
        seconds_left=None if left == float("inf") else left,
        history=tuple(
            f"{row.ruling.tier} {row.ruling.ruling} {row.ruling.reason}{_percent(row)} {short(row.ruling.candidate)} "
            f"by {row.author}: {row.reason[:200]}"
            for row in history(desk, author)
        ),
        door=door,
        shared=desk.share,
        playbook=playbook,
    )
    return render(replace(house.brief(desk.journal), incumbent=desk.incumbent(author)), facts)


def _percent(row: Tried) -> str:
    return f" {percent(row.ruling.gain)}" if row.ruling.gain else ""
