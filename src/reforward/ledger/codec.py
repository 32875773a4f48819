"""Record to row and back: the body is the record's own canonical JSON; types are checked on the way in."""

from typing import Any

import msgspec

from reforward.domain.attempt import Attempt, Ended, Spent
from reforward.domain.calibration import Calibration
from reforward.domain.candidate import Candidate, Proposal, Skipped
from reforward.domain.contract import Contract
from reforward.domain.deployment import Deployment, Rollout
from reforward.domain.errors import BadInput, LedgerCorrupt
from reforward.domain.job import Answer, Job
from reforward.domain.measurement import Failed, Measurement
from reforward.domain.profile import Profile
from reforward.domain.record import Record, content_id
from reforward.domain.run import Run, Turn
from reforward.domain.subject import Subject
from reforward.domain.target import Target
from reforward.domain.verdict import Verdict
from reforward.domain.workload import Workload

KINDS: dict[str, type[Record]] = {
    kind.tag: kind
    for kind in (
        Answer, Attempt, Calibration, Candidate, Contract, Deployment, Ended, Failed, Job, Measurement, Profile, Proposal,
        Rollout, Run, Skipped, Spent, Subject, Target, Turn, Verdict, Workload,
    )
}  # fmt: skip
"""Every record that a ledger can hold, by tag."""
OTHER_VERSION = "another version of reforward wrote it: use that one, or begin a new ledger (REFORWARD_HOME)"


def decode(record_id: str, tag: str, body: str) -> Record:
    """The record of a row, checked against its id; `LedgerCorrupt` says what does not fit.

    The text is checked before its fields: so a damaged row and a row whose fields another version wrote are told apart.
    """
    if content_id(tag, body) != record_id:
        raise LedgerCorrupt(f"{record_id} does not match its content, whose id is {content_id(tag, body)}")
    if tag not in KINDS:
        raise LedgerCorrupt(f"{record_id} has the unknown kind {tag!r}; {OTHER_VERSION}")
    try:
        plain: Any = msgspec.json.decode(body.encode())
        record = msgspec.convert(plain, KINDS[tag])
    except (msgspec.ValidationError, msgspec.DecodeError, BadInput) as error:
        raise LedgerCorrupt(f"{record_id} cannot be read: {error}; {OTHER_VERSION}") from None
    if record.id != record_id:
        raise LedgerCorrupt(f"{record_id} has other fields than this reforward knows; {OTHER_VERSION}")
    return record
