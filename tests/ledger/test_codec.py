"""Rows of other versions: whole, with the right hash, and still nothing that this version can read."""

import pytest

from ledger.records import CONTRACT, EVERY_KIND, FAILED
from reforward.domain.errors import LedgerCorrupt
from reforward.domain.record import Record, content_id
from reforward.domain.workload import Request, Workload
from reforward.ledger.codec import decode

VERDICT = next(record for record in EVERY_KIND if record.tag == "verdict")


def _edited(record: Record, old: str, new: str, tag: str | None = None) -> Record:
    assert old in record.body
    body = record.body.replace(old, new)
    return decode(content_id(tag or record.tag, body), tag or record.tag, body)


def test_an_unchanged_row_is_read() -> None:
    assert _edited(FAILED, "exit 1", "exit 1") == FAILED


@pytest.mark.parametrize(
    ("record", "old", "new", "message"),
    [
        (FAILED, '"tier":"fast"', '"tier":"medium"', "Invalid enum value 'medium'"),
        (FAILED, '"tier":"fast",', "", "missing required field `tier`"),
        (FAILED, '{"arm"', '{"a_new_field":1,"arm"', "other fields than this reforward knows"),
        (VERDICT, '"mid":0.5', '"mid":"0.5"', "Expected `float`, got `str`"),
        (VERDICT, '"passed":true', '"passed":1', "Expected `bool`, got `int`"),
        (CONTRACT, '"alpha":0.05', '"alpha":5.0', "alpha must lie in"),
        (CONTRACT, "}", "", "cannot be read"),
    ],
)
def test_what_another_version_wrote(record: Record, old: str, new: str, message: str) -> None:
    with pytest.raises(LedgerCorrupt, match=message) as caught:
        _edited(record, old, new)
    assert "another version of reforward wrote it" in str(caught.value)


def test_an_unknown_kind() -> None:
    with pytest.raises(LedgerCorrupt, match="unknown kind 'prophecy'; another version"):
        _edited(FAILED, "exit 1", "exit 1", tag="prophecy")


def test_a_hash_that_does_not_fit() -> None:
    with pytest.raises(LedgerCorrupt, match="does not match its content"):
        decode(FAILED.id, FAILED.tag, FAILED.body + " ")


OLD = (
    '{"concurrency":2,"inputs":0,"length_scale":0.5,"name":"two","requests":[{"arrival_s":0.0,"output_tokens":2,"prompt_tokens":3}],'
    '"source":"a test","weights":[1.0]}'
)
"""A workload as it was written before requests had reuse, company, sampling and blocks."""


def test_a_row_from_before_a_later_field_reads_with_its_default_and_keeps_its_id() -> None:
    read = decode(content_id("workload", OLD), "workload", OLD)
    assert isinstance(read, Workload)
    assert (read.body, read.requests[0].reused_tokens, read.requests[0].blocks) == (OLD, 0, ())


def test_a_later_field_that_is_set_is_part_of_the_id() -> None:
    request = Request(arrival_s=0, prompt_tokens=3, output_tokens=2, reused_tokens=1, blocks=(7, 8))
    new = Workload(name="two", source="a test", requests=(request,), weights=(1.0,))
    assert '"blocks":[7,8]' in new.body
    assert decode(new.id, new.tag, new.body) == new
