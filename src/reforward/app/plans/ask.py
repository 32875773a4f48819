"""What `reforward plan` asks of the planner: files read, the question put, the answer as facts for people and for JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from reforward.domain.errors import BadInput
from reforward.plan.case import Price, Question
from reforward.plan.dtypes import BYTES
from reforward.plan.engine import Engine
from reforward.plan.gpu import Gpu
from reforward.plan.launch import both, command
from reforward.plan.layout import Layout
from reforward.plan.model import Model
from reforward.plan.price import pricing, read_routing
from reforward.plan.remedy import Miss, nearest
from reforward.plan.rows import Row, curve
from reforward.plan.search import Found, fewest, search
from reforward.plan.sla import Limit, parse_sla
from reforward.plan.traffic import Traffic, parse_rate
from reforward.traffic.packaged import CITATION, packaged_trace
from reforward.traffic.stamps import spread
from reforward.traffic.trace import Trace, read_trace

USUAL_SLA = ("ttft_p90=1s", "itl_p90=50ms")
"""What is promised if nothing is said: that reading is not slower than writing."""
MOST_GPUS = 4096
SEED = 0
"""Decides where between rounded times requests are put."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of the command line, unread."""

    model: str
    gpu: str = "h200"
    gpu_spec: Path | None = None
    gpus: int = 8
    engine: str = "vllm"
    traffic: str | None = None
    """A file, a preset or PROMPT/OUTPUT tokens."""
    sla: Sequence[str] = ()
    rate: str | None = None
    layout: str | None = None
    """Plan this one alone."""
    dtype: str | None = None
    kv_dtype: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int = 0
    calibration: Path | None = None
    routing: Path | None = None
    """Tokens that each expert got, a JSON list."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One row of a plan. Seconds; rates a second."""

    layout: str
    replicas: int
    gpus: int
    gpus_per_replica: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    kv_blocks: int
    rate: float
    tok_s_gpu: float
    tok_s_gpu_low: float
    tok_s_gpu_high: float
    tok_s_user: float
    percentiles: Mapping[str, float]
    meets_sla: float
    binding: str
    kv_headroom: float
    terms: Mapping[str, float]
    weights_gb: float
    launch: str
    curve: Sequence[tuple[float, float]]
    """(tokens a second of a user, tokens a second and GPU) at growing load."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A plan, as it is printed and as `plan check` reads it back."""

    model: str
    gpu: str
    gpus: int
    engine: str
    dtype: str
    kv_dtype: str
    asked_dtype: str | None
    asked_kv_dtype: str | None
    gpu_spec: str | None
    """Options that `plan check` asks again with."""
    traffic: str
    rate: float | None
    sla: Sequence[str]
    times_from: str
    tried: int
    choices: Sequence[Choice]
    missed: Miss | None
    left_out: Mapping[str, str]
    """Layouts that were left out, and why."""


def plan(wanted: Wanted) -> Answer:
    """The ranked configurations, or what came closest."""
    question = put(wanted)
    layouts = [_named(wanted.layout, question)] if wanted.layout else None
    return answer(wanted, question, search(question, layouts))


def _named(text: str, question: Question) -> Layout:
    layout = Layout.parse(text).check(question.model, question.gpu)
    if layout.gpus > question.gpus:
        raise BadInput(f"{layout} needs {layout.gpus} GPUs, but there are {question.gpus}; say --gpus {layout.gpus}")
    return layout


def size(wanted: Wanted) -> Answer:
    """The fewest GPUs that carry the rate."""
    question, found = fewest(put(wanted), MOST_GPUS)
    return answer(wanted, question, found)


def put(wanted: Wanted) -> Question:
    """The question that the options ask. Raises `BadInput` for what contradicts itself."""
    if wanted.gpus < 1:
        raise BadInput(f"--gpus must be at least 1, got {wanted.gpus}")
    seats, tokens = wanted.max_num_seqs, wanted.max_num_batched_tokens
    if seats and tokens and seats > tokens:
        raise BadInput(
            f"--max-num-seqs {seats} is above --max-num-batched-tokens {tokens}; a step has a token a sequence"
        )
    gpu = Gpu.read_file(wanted.gpu_spec) if wanted.gpu_spec else Gpu.read(wanted.gpu)
    model = _in_precision(Model.read(wanted.model), wanted)
    traffic = read_traffic(wanted.traffic)
    if wanted.max_model_len and wanted.max_model_len < traffic.longest:
        raise BadInput(
            f"--max-model-len is {wanted.max_model_len}, but a request of {traffic.source} has {traffic.longest} tokens; "
            "give a longer one, or traffic without it"
        )
    if traffic.longest > model.max_length:
        raise BadInput(
            f"a request of {traffic.source} has {traffic.longest} tokens, but {model.name} takes {model.max_length}; "
            "give other traffic"
        )
    return Question(
        model=model,
        gpu=gpu,
        gpus=wanted.gpus,
        engine=Engine(name=wanted.engine),
        traffic=traffic,
        sla=_ordered(parse_sla(wanted.sla or USUAL_SLA)),
        price=_price(model, wanted),
        rate=None if wanted.rate is None else parse_rate(wanted.rate),
        seats=wanted.max_num_seqs,
        tokens=wanted.max_num_batched_tokens,
        max_model_len=wanted.max_model_len,
    )


def _price(model: Model, wanted: Wanted) -> Price:
    if wanted.routing is not None:
        experts = model.moe.experts if model.moe else 0
        counted = len(read_routing(wanted.routing).shares)
        if counted != experts:
            raise BadInput(
                f"{wanted.routing} counts {counted} experts, but {model.name} has {experts}; count those of one layer"
            )
    return pricing(wanted.calibration, wanted.routing)


def _ordered(limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
    return tuple(sorted(limits, key=lambda one: one.name))


def _in_precision(model: Model, wanted: Wanted) -> Model:
    for name, value in (("--dtype", wanted.dtype), ("--kv-dtype", wanted.kv_dtype)):
        if value is not None and value not in BYTES:
            raise BadInput(f"{name} {value!r} is not known; one of {', '.join(BYTES)}")
    if wanted.dtype:
        model = model.in_precision(wanted.dtype)
    return model.quantised(replace(model.dtypes, kv=wanted.kv_dtype)) if wanted.kv_dtype else model


def read_traffic(name: str | None) -> Traffic:
    """A file, a preset, PROMPT/OUTPUT tokens; None: the packaged slice of a real trace."""
    if name is None:
        return _as_traffic(packaged_trace(), CITATION)
    path = Path(name)
    if path.exists():
        trace = read_trace(path)
        return _as_traffic(trace, trace.source)
    return Traffic.preset(name)


def _as_traffic(trace: Trace, source: str) -> Traffic:
    rows, step = spread(trace.requests, SEED)
    if step:
        source += f"; times are rounded to about {step:.2g} s, requests were spread between them"
    return Traffic(
        arrival=np.array([row.arrival_s for row in rows]),
        prompt=np.array([row.prompt_tokens for row in rows]),
        output=np.array([row.output_tokens for row in rows]),
        source=source,
    )


def answer(wanted: Wanted, question: Question, found: Found) -> Answer:
    """Facts of what was found."""
    model = question.model
    return Answer(
        model=wanted.model,
        gpu=question.gpu.name,
        gpus=question.gpus,
        engine=question.engine.name,
        dtype=model.dtypes.attention
        if model.moe is None
        else f"{model.dtypes.attention}, experts {model.dtypes.experts}",
        kv_dtype=model.dtypes.kv,
        asked_dtype=wanted.dtype,
        asked_kv_dtype=wanted.kv_dtype,
        gpu_spec=str(wanted.gpu_spec) if wanted.gpu_spec else None,
        traffic=question.traffic.source,
        rate=question.rate,
        sla=[one.words for one in question.sla],
        times_from=found.cases[0].priced.about if found.cases else "",
        tried=found.tried,
        choices=[_choice(row, wanted.model) for row in found.rows],
        missed=None if found.rows else nearest(question, found),
        left_out={str(one.layout): one.why for one in found.unfit},
    )


def _choice(row: Row, model: str) -> Choice:
    case = row.case
    return Choice(
        layout=row.words,
        replicas=row.replicas,
        gpus=row.gpus,
        gpus_per_replica=row.gpus // row.replicas,
        max_num_seqs=case.limits.max_num_seqs,
        max_num_batched_tokens=case.limits.max_num_batched_tokens,
        max_model_len=case.memory.max_model_len,
        kv_blocks=case.memory.kv_blocks,
        rate=row.rate,
        tok_s_gpu=row.tokens_per_gpu,
        tok_s_gpu_low=row.interval[0],
        tok_s_gpu_high=row.interval[1],
        tok_s_user=row.tokens_per_user,
        percentiles=row.percentiles,
        meets_sla=row.meets,
        binding=row.binding,
        kv_headroom=row.headroom,
        terms=row.terms,
        weights_gb=case.memory.weights / 1e9,
        launch=command(case, model) if row.pair is None else both(row.pair, model),
        curve=curve(row),
    )
