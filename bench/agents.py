"""Four agents at the same time on one engine: how busy it is, whether any candidate is lost or done twice, how fair the shares are.

    python bench/agents.py [--subject smollm2] [--agents 4] [--budget 120s] [--think 1]

The agents are programs without a mind (bench/agent.py) that take `think` seconds between two jobs; engine, door, desk, judge and
ledger are the real ones. A worker has one thread, so that builds find a core on a machine of two. Exit code 1 if the engine was
busy for less than 80 % of the run, anything was lost or doubled, or an author had less than half of an equal share.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import card
from reforward.app.agents.crew import Team
from reforward.app.agents.specs import parse_agent
from reforward.app.config import environment, load_config
from reforward.app.optimize import Report, optimize
from reforward.app.settings import Settings
from reforward.cli.live import Live
from reforward.cli.summary import utilisation
from reforward.domain.attempt import Attempt, Ended
from reforward.domain.candidate import Proposal
from reforward.domain.job import Answer, Job
from reforward.domain.run import Turn
from reforward.domain.verdict import Verdict
from reforward.ledger.store import SqlLedger
from reforward.ledger.views import every, only
from reforward.mcp.door import open_door

BUSY, FAIR = 0.8, 0.5
AGENT = Path(__file__).with_name("agent.py")


def worked(args: argparse.Namespace) -> Report:
    """The run itself."""
    spec = f"command:{sys.executable} {AGENT} {{brief}} {args.think}"
    agent = parse_agent(spec, environment(), base_url=None)
    search = Team(agents=[agent], door=open_door, secrets=(), parallel=args.agents).search()
    settings = Settings(min_gain=0.5, requests=3, length_scale=1 / 16, threads=1)
    with Live(as_json=True, details=False) as live:
        return optimize(
            args.subject, settings, budget=args.budget, candidates=None, from_stock=True, search=search, emit=live
        )


def told(ledger: SqlLedger, run: str) -> list[dict[str, str]]:
    """What the agents of a run saw of their jobs."""
    attempts = {one.id for one in every(ledger, Attempt) if one.run == run}
    texts = [ledger.blobs.get(end.transcript).decode() for end in every(ledger, Ended) if end.attempt in attempts]
    rows = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
    return [row for row in rows if "job" in row]


def account(ledger: SqlLedger, run: str) -> dict[str, int]:
    """Jobs and candidates of one run, counted in the ledger and as their authors saw them."""
    jobs = {job.id: job for job in every(ledger, Job) if job.run == run}
    answers = Counter(answer.job for answer in every(ledger, Answer) if answer.job in jobs)
    turns = [turn for turn in every(ledger, Turn) if turn.run == run]
    fast = Counter(
        verdict.candidate
        for verdict in (only(ledger.get(turn.verdict), Verdict) for turn in turns)
        if verdict.tier == "fast"
    )
    proposed = Counter(p.candidate for p in every(ledger, Proposal) if p.run == run)
    seen = told(ledger, run)
    done = [row["job"] for row in seen if row["state"] == "done"]
    open_ = set(jobs) - set(answers)
    ruled_late = {jobs[job].candidate for job in open_ if jobs[job].kind == "submit"}
    return {
        "jobs": len(jobs),
        "answered": len(answers),
        "open at the end": len(open_),
        "answered twice": sum(count > 1 for count in answers.values()),
        "candidates screened": len(fast),
        "screened twice": sum(count > 1 for count in fast.values()),
        "submitted and lost": len(set(proposed) - set(fast) - ruled_late),
        "seen as done and not in the ledger": len(set(done) - set(answers)),
        "answered and never seen": len(set(answers) - {row["job"] for row in seen}),
    }


def main() -> None:
    """One run, one table, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", default="smollm2")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--budget", default="120s")
    parser.add_argument("--think", type=float, default=1.0)
    args = parser.parse_args()
    card.ceiling("an engine that never waits is busy all the time; equal authors have equal shares")
    report = worked(args)
    assert report.engine is not None
    config = load_config()
    counts = account(SqlLedger(config.ledger, config.blobs), report.run)
    shares = [share.seconds for share in report.engine.authors]
    least = min(shares) / (sum(shares) / args.agents) if len(shares) == args.agents else 0.0
    utilisation(report.engine)
    card.table("jobs and candidates", ["", "count"], [[name, str(count)] for name, count in counts.items()])
    print(f"least share of an author: {least:.2f} of an equal one")
    wrong = [name for name in counts if "twice" in name or "lost" in name or "not in" in name]
    bad = sum(counts[name] for name in wrong)
    card.finish(
        "agents",
        {
            "subject": args.subject,
            "agents": args.agents,
            "think_s": args.think,
            "busy": round(report.engine.busy_share, 3),
            "least_share": round(least, 3),
            "timeline": [round(part, 2) for part in report.engine.timeline],
            "seconds_by_author": {share.author: round(share.seconds, 1) for share in report.engine.authors},
            "build_s": round(report.engine.build_s, 1),
            **{name.replace(" ", "_"): count for name, count in counts.items()},
        },
    )
    sys.exit(1 if report.engine.busy_share < BUSY or least < FAIR or bad else 0)


if __name__ == "__main__":
    main()
