"""What a running service learns from its own traffic."""

from reforward.domain.call import Call
from reforward.domain.workload import Request
from reforward.traffic.blocks import PrefixHasher
from reforward.traffic.drift import Looked
from reforward.traffic.packaged import packaged_code_trace, packaged_trace
from reforward.traffic.tap import Tap
from reforward.traffic.watch import Watch

HASHER = PrefixHasher(bytes(32), "token")


def calls(requests: tuple[Request, ...], status: int = 200) -> list[Call]:
    return [
        Call(
            arrived_s=r.arrival_s,
            seconds=0.5,
            prompt_tokens=r.prompt_tokens,
            output_tokens=r.output_tokens,
            status=status,
        )
        for r in requests
    ]


def test_a_shift_is_told_once_and_the_new_traffic_becomes_the_reference() -> None:
    chat, code = packaged_trace().requests, packaged_code_trace().requests
    told: list[Looked] = []
    watch = Watch(HASHER, told.append, window=200, windows=4)
    tap = Tap([watch])
    for call in (*calls(chat[:1000]), *calls(chat[1000:1100], status=500), *calls(code[:1400])):
        tap.observe(call)
    assert tap.close().kept == 2500
    assert len(told) == 1
    assert watch.ready, "600 requests of the alarm and 200 more are the new reference"
    newest = watch.requests(50)
    assert [r.output_tokens for r in newest] == [r.output_tokens for r in code[1350:1400]]
    assert len(watch.requests()) == 800
    assert newest[0].arrival_s == 0.0


def test_prefixes_and_company_are_known_of_the_newest() -> None:
    watch = Watch(HASHER, lambda looked: None, window=200)
    assert (watch.ready, watch.requests()) == (False, ())
    prompt = tuple(range(128))
    watch.take(
        [Call(arrived_s=at, seconds=1.0, prompt_tokens=128, output_tokens=1, prompt=prompt) for at in (10.5, 10.0)]
    )
    first, second = watch.requests()
    assert (first.in_flight, second.in_flight, second.reused_tokens, second.arrival_s) == (1, 2, 128, 0.5)
