"""Shifts of traffic, made from recorded traffic: one client that starts or stops is the commonest kind."""

from collections.abc import Sequence
from dataclasses import replace

from reforward.domain.errors import BadInput
from reforward.domain.workload import Request


def joins(base: Sequence[Request], client: Sequence[Request], at_s: float, share: float) -> tuple[Request, ...]:
    """From `at_s` on a client sends `share` of all requests; its own, in their order, pressed or stretched in time to fit.

    Ends early if the client has too few.
    """
    before = [request for request in base if request.arrival_s < at_s]
    after = [request for request in base if request.arrival_s >= at_s]
    after, used = _mixed(after, client, share)
    return _merged([*before, *after], _fitted(used, at_s, after[-1].arrival_s))


def leaves(base: Sequence[Request], client: Sequence[Request], at_s: float, share: float) -> tuple[Request, ...]:
    """The opposite: the client sends `share` of all requests up to `at_s`, and none afterwards."""
    before = [request for request in base if request.arrival_s < at_s]
    after = [request for request in base if request.arrival_s >= at_s]
    kept, used = _mixed(before, client, share)
    if len(kept) < len(before):
        raise BadInput(f"the client has {len(client)} requests, too few to be {share:g} of {len(before)} others")
    return _merged([*before, *after], _fitted(used, before[0].arrival_s, at_s))


def _mixed(others: list[Request], client: Sequence[Request], share: float) -> tuple[list[Request], Sequence[Request]]:
    """As many of both as give the share."""
    if not 0 < share < 1 or not others or len(client) < 2:
        raise BadInput(
            f"a mix needs a share in (0, 1) and requests of both, got {share:g}, {len(others)} and {len(client)}"
        )
    kept = others[: max(1, int(len(client) * (1 - share) / share))]
    return kept, client[: max(2, round(len(kept) * share / (1 - share)))]


def _fitted(requests: Sequence[Request], start_s: float, end_s: float) -> list[Request]:
    first = requests[0].arrival_s
    stretch = (end_s - start_s) / max(1e-9, requests[-1].arrival_s - first)
    return [replace(request, arrival_s=start_s + (request.arrival_s - first) * stretch) for request in requests]


def _merged(one: Sequence[Request], other: Sequence[Request]) -> tuple[Request, ...]:
    return tuple(sorted([*one, *other], key=lambda request: request.arrival_s))
