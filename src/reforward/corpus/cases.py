"""The corpus as values. A case is a folder below `cases/<host>/`: a candidate's source tree whose entry file says, in the
header at the end of its docstring, what the judge must make of it.

    Reported: who described the idea, and where (hostile cases)
    Covers: items of `corpus/items.py`, separated by semicolons
    Expect: `honest`, or what the verdict must be, separated by commas: a reason code, or `failed@<stage>`
    Needs: what the machine must have, of `gpu` or `cpu` as the device that runs it, and `compiler` (optional)
    Tier: `fast` or `slow`; the default is slow, the tier that promotes (optional)
    Sessions: how many to run; the last one is judged (optional)
    Steps: greedy steps that a call may ask for (optional, lm)
    Pairs: of launches in a quick session, where two show too few rows (optional)

Most cheats are a few lines on top of the stock forward. The tree of a case therefore gets the stock's entry file too, as
`stock.py` (lm) or `stock_<file>.py` (module), and the case derives from it. A case without code is the stock itself.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from reforward.corpus.items import ITEMS
from reforward.domain.candidate import Candidate, SourceFile
from reforward.domain.measurement import Stage
from reforward.domain.subject import Host, Tier
from reforward.domain.verdict import Reason

FOLDER = Path(__file__).parent / "cases"
ENTRIES: dict[Host, str] = {"lm": "forward.py:Forward", "module": "network.py:Network"}
FIELDS = ("Reported", "Covers", "Expect", "Needs", "Tier", "Sessions", "Steps", "Pairs")
NEEDS = frozenset({"gpu", "cpu", "compiler"})
HONEST = "honest"
GAIN_REASONS = frozenset[Reason]({"slower", "no-gain", "identical"})
"""For which an honest candidate may be rejected."""
_FIELD = re.compile(rf"^({'|'.join(FIELDS)}): (.*)$")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One candidate and what is expected of the judge."""

    name: str
    host: Host
    about: str
    """First line of its docstring."""
    reported: str
    covers: tuple[str, ...]
    expect: tuple[str, ...]
    """Empty for an honest case."""
    needs: frozenset[str]
    tier: Tier
    sessions: int
    steps: int
    pairs: int
    """Of launches, in a quick session."""
    files: Mapping[str, str]
    """Path to text, as in the folder."""

    @property
    def honest(self) -> bool:
        """The judge must not call it hostile."""
        return not self.expect

    @property
    def hostile(self) -> bool:
        """The judge must reject it."""
        return bool(self.expect)

    @property
    def gain_only(self) -> bool:
        """It does no harm but to claim a gain that is not there, which may stay undecided."""
        return "undecided" in self.expect

    def candidate(self, stock: Candidate) -> Candidate:
        """The tree that is handed to the engine: the case's files and the stock they derive from."""
        entry = ENTRIES[self.host].partition(":")[0]
        if len(ast.parse(self.files[entry]).body) == 1:
            return stock
        twin = "stock.py" if self.host == "lm" else f"stock_{entry}"
        texts = {twin: stock.text_of(entry) or "", **self.files}
        tree = tuple(SourceFile(path=path, text=texts[path]) for path in sorted(texts))
        return Candidate(host=self.host, entry=ENTRIES[self.host], files=tree)


def read_cases(folder: Path = FOLDER) -> tuple[Case, ...]:
    """All cases below `folder`, by host and name. `ValueError` names the case and what is wrong in its header."""
    hosts: tuple[Host, ...] = ("lm", "module")
    return tuple(read_case(host, path) for host in hosts for path in sorted((folder / host).iterdir()) if path.is_dir())


def read_case(host: Host, folder: Path) -> Case:
    """One case."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    entry = ENTRIES[host].partition(":")[0]
    if entry not in files:
        raise ValueError(f"case {folder.name}: no {entry}")
    text = ast.get_docstring(ast.parse(files[entry])) or ""
    return _case(host, folder.name, files, text)


def _case(host: Host, name: str, files: Mapping[str, str], text: str) -> Case:
    about, fields = text.partition("\n")[0], _fields(text)
    expect, covers = _list(fields, "Expect", ","), _list(fields, "Covers", ";")
    wrong = [word for word in expect if word != HONEST and not _known(word)]
    wrong += [word for word in covers if word not in ITEMS]
    wrong += [word for word in _list(fields, "Needs", ";") if word not in NEEDS]
    hostile = HONEST not in expect
    if wrong or not expect or not about:
        raise ValueError(f"case {name}: unknown words in its header: {wrong or 'no Expect, or no first line'}")
    if hostile and not (covers and fields.get("Reported")):
        raise ValueError(f"case {name}: a hostile case needs the fields Covers and Reported")
    return Case(
        name=name,
        host=host,
        about=about,
        reported=fields.get("Reported", ""),
        covers=covers,
        expect=expect if hostile else (),
        needs=frozenset(_list(fields, "Needs", ";")),
        tier="fast" if fields.get("Tier") == "fast" else "slow",
        sessions=int(fields.get("Sessions", "1")),
        steps=int(fields.get("Steps", "1")),
        pairs=int(fields.get("Pairs", "2")),
        files=files,
    )


def _fields(text: str) -> dict[str, str]:
    """Header fields; a line that is indented goes on with the field above."""
    found: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        match = _FIELD.match(line)
        if match:
            last = match[1]
            found[last] = match[2].strip()
        elif last and line.startswith(" "):
            found[last] += " " + line.strip()
        else:
            last = ""
    return found


def _list(fields: Mapping[str, str], name: str, separator: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in fields.get(name, "").split(separator) if word.strip())


def _known(word: str) -> bool:
    reason, _, stage = word.partition("@")
    return reason in get_args(Reason) and (not stage or (reason == "failed" and stage in get_args(Stage)))
