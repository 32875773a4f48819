"""A trace written as ours, or as Mooncake's for other tools. Never over a file that is there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request
from reforward.traffic import mooncake
from reforward.traffic.blocks import TOKENS
from reforward.traffic.native import Header, row_line
from reforward.traffic.row import Row
from reforward.traffic.trace import Trace

Form = Literal["reforward", "mooncake"]


def write_trace(trace: Trace, out: Path, form: Form) -> int:
    """Rows written. Hashes are renumbered from 0, so that nothing is left of the key that made them."""
    numbers: dict[int, int] = {}
    lines = _ours(trace, numbers) if form == "reforward" else _mooncake(trace, numbers)
    try:
        with out.open("x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except FileExistsError:
        raise BadInput(f"{out} exists already; give the name of a new file") from None
    except OSError as error:
        raise BadInput(f"cannot write {out}: {error.strerror}") from error
    return len(trace.requests)


def _ours(trace: Trace, numbers: dict[int, int]) -> Iterator[str]:
    """The header keeps unit and size of blocks; when the traffic was, and with which key it was hashed, is left out."""
    known = trace.header
    size = known.block_size if any(request.blocks for request in trace.requests) else 0
    yield Header(block_size=size, block_unit=known.block_unit, source=trace.source).line()
    for request in trace.requests:
        blocks = tuple(numbers.setdefault(block, len(numbers)) for block in request.blocks)
        yield row_line(_row(request, blocks))


def _row(request: Request, blocks: tuple[int, ...]) -> Row:
    return Row(
        seconds=request.arrival_s,
        prompt=request.prompt_tokens,
        output=request.output_tokens,
        blocks=blocks,
        sampling=request.sampling,
        in_flight=request.in_flight,
    )


def _mooncake(trace: Trace, numbers: dict[int, int]) -> Iterator[str]:
    for request in trace.requests:
        blocks = tuple(numbers.setdefault(block, len(numbers)) for block in _regrouped(request, trace.header))
        told = {
            "timestamp": round(request.arrival_s * 1000),
            "input_length": request.prompt_tokens,
            "output_length": request.output_tokens,
            "hash_ids": blocks,
        }
        yield json.dumps(told)


def _regrouped(request: Request, header: Header) -> tuple[int, ...]:
    """Blocks of 512 tokens out of smaller ones: a hash covers all before it, so every so many-th one is the one wanted."""
    count, total = len(request.blocks), -(-request.prompt_tokens // mooncake.BLOCK)
    exact = header.block_unit == TOKENS and header.block_size > 0 and mooncake.BLOCK % header.block_size == 0
    if not count or (header.block_unit == TOKENS and not exact):
        return ()
    ratio = mooncake.BLOCK / header.block_size if exact else count * mooncake.BLOCK / request.prompt_tokens
    places = (min(count, round(ratio * place)) for place in range(1, total + 1))
    return tuple(request.blocks[max(1, place) - 1] for place in places)
