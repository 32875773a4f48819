"""One record of every kind, filled in as a run fills them in."""

from reforward.domain.attempt import Attempt, Ended, Spent
from reforward.domain.calibration import Calibration, Noise
from reforward.domain.candidate import Candidate, Proposal, Skipped, SourceFile
from reforward.domain.contract import Contract
from reforward.domain.deployment import Deployment, Rollout, Validity
from reforward.domain.job import Answer, Job
from reforward.domain.measurement import Arm, Failed, Measurement, Memory, Sample
from reforward.domain.profile import Op, Profile
from reforward.domain.record import Record
from reforward.domain.run import Run, Turn
from reforward.domain.subject import Subject, Tier
from reforward.domain.target import Launch, Machine, Target
from reforward.domain.verdict import Finding, Interval, Ruling, Verdict
from reforward.domain.workload import Request, Workload

AT = "2026-01-02T03:04:05.000006+00:00"
CONTRACT = Contract(numerics="reassociated")
WORKLOAD = Workload(
    name="two", source="a test", weights=(1.0, 2.5), length_scale=0.5, concurrency=2,
    requests=(Request(arrival_s=0, prompt_tokens=3, output_tokens=2),
              Request(arrival_s=1.5, prompt_tokens=1, output_tokens=9)),
)  # fmt: skip


def candidate(text: str) -> Candidate:
    """A tree of one file; umlauts, quotes and newlines must survive storage."""
    return Candidate(
        host="lm", entry="forward.py:Forward", files=(SourceFile(path="forward.py", text=f'"""ä "q"\\n"""\n{text}\n'),)
    )


STOCK = candidate("stock")
SUBJECT = Subject(
    name="tiny", host="lm", weights="w" * 32, stock=STOCK.id, spec="{}", dtype="float32", depth=4, fast_depth=2
)
TARGET = Target(
    subject=SUBJECT.id,
    machine=Machine(cpu="a cpu", cores=2, isa="avx2", memory_gib=8, devices=("one", "two")),
    software=("python==3.11.0", "torch==2.13.0"),
    launch=Launch(threads=2, pages="huge", sandbox=("landlock",)),
)


def run(number: int = 0, contract: Contract = CONTRACT) -> Run:
    """A run of the tiny subject; runs with other numbers are other runs."""
    return Run(
        subject=SUBJECT.id,
        target=TARGET.id,
        contract=contract.id,
        workload=WORKLOAD.id,
        held_out=WORKLOAD.id,
        base=SUBJECT.stock,
        proposers=("passes", "inbox"),
        started_at=f"{AT}#{number}",
    )


def measurement(of: Candidate, incumbent: Candidate, tier: Tier) -> Measurement:
    """Two samples; the numbers mean nothing."""
    return Measurement(
        tier=tier,
        target=TARGET.id,
        workload=WORKLOAD.id,
        nonce="00ff",
        candidate=_arm(of),
        incumbent=_arm(incumbent),
        samples=(
            Sample(arm="candidate", launch=0, order=0, seconds=0.5, ttft_s=(0.1, 0.25), decode_s=0.2, decode_tokens=7),
            Sample(arm="incumbent", launch=0, order=1, seconds=1.0),
        ),
        outputs="o" * 32,
        started_at=AT,
    )


def _arm(of: Candidate) -> Arm:
    memory = Memory(weights=1 << 40, packed=0, state=3, private=4)
    return Arm(candidate=of.id, watermark="w", load_s=0.1, pack_s=0.0, build_s=1e-9, memory=memory)


def turn(
    place: Run, of: Candidate, incumbent: Candidate, gain: float, *, tier: Tier = "slow", ruling: Ruling = "accept"
) -> tuple[Record, ...]:
    """Everything that one turn appends, in the order in which it is appended."""
    facts = measurement(of, incumbent, tier)
    proposal = Proposal(run=place.id, candidate=of.id, parent=incumbent.id, author="passes", reason="faster", order=0)
    verdict = Verdict(
        measurement=facts.id,
        contract=place.contract,
        candidate=of.id,
        tier=tier,
        ruling=ruling,
        reason="faster" if ruling == "accept" else "slower",
        detail="because",
        gain=Interval(low=gain - 0.1, mid=gain, high=gain + 0.1),
        findings=(Finding(check="rms", value=1.0, limit=2.0, passed=True),),
    )
    closing = Turn(run=place.id, proposal=proposal.id, verdict=verdict.id, incumbent=incumbent.id)
    return of, proposal, facts, verdict, closing


FAILED = Failed(
    tier="fast", target=TARGET.id, workload=WORKLOAD.id, candidate=STOCK.id, arm="candidate", stage="build",
    reason="exit 1", log="gemv.h:3: error\n", started_at=AT,
)  # fmt: skip
SKIPPED = Skipped(run=run().id, author="passes", what="native", remedy="apt install g++")
CALIBRATION = Calibration(
    tier="fast", target=TARGET.id, workload=WORKLOAD.id, measurement=measurement(STOCK, STOCK, "fast").id,
    noise=Noise(deviation=0.03, freedom=7), bias=-0.002, pair_s=1.2,
    read_bytes_s=4e10, cache_bytes=1 << 25, made_at=AT,
)  # fmt: skip
FIRST = candidate("first")
PROFILE = Profile(
    tier="fast", target=TARGET.id, workload=WORKLOAD.id, candidate=FIRST.id, seconds=0.25, started_at=AT,
    ops=(Op(name="aten::mm", calls=12, self_s=0.125), Op(name="(3 more)", calls=4, self_s=0.0)),
)  # fmt: skip
JOB = Job(run=run().id, kind="profile", candidate=FIRST.id, against="", repeat=1)
ANSWER = Answer(job=JOB.id, result=PROFILE.id, error="")
ATTEMPT = Attempt(run=run().id, author="ada", agent="command:ada {brief}", brief="b" * 32, started_at=AT)
ENDED = Ended(attempt=ATTEMPT.id, how="done", seconds=1.5, transcript="t" * 32, calls=3, tokens_in=100, tokens_out=20)
DEPLOYMENT = Deployment(
    target=TARGET.id, candidate=FIRST.id, verdict="v", validity=Validity(length=96, batch=4, dtype="float32"), replaces="",
    cause="promoted", detail="", seconds=0.25, at=AT,
)  # fmt: skip
ROLLOUT = Rollout(
    target=TARGET.id, candidate=FIRST.id, incumbent=STOCK.id, outcome="rolled-back", reason="latency", requests=20, harmed=1,
    findings=(Finding(check="latency", value=2.0, limit=1.0, passed=False),), seconds=9.5, at=AT,
)  # fmt: skip
SPENT = Spent(attempt=ATTEMPT.id, usd=0.25)
EVERY_KIND: tuple[Record, ...] = (
    CONTRACT, WORKLOAD, STOCK, SUBJECT, TARGET, run(), *turn(run(), FIRST, STOCK, 0.5), FAILED, SKIPPED,
    CALIBRATION, PROFILE, JOB, ANSWER, ATTEMPT, ENDED, SPENT, DEPLOYMENT, ROLLOUT,
)  # fmt: skip
