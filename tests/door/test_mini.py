"""A real coding agent, mini-swe-agent (https://mini-swe-agent.com), from the brief to a verdict; its model is a script."""

import shutil
from pathlib import Path

import pytest

from door.model_server import say, scripted_server, use
from door.test_agents import run
from reforward.app.config import environment
from reforward.domain.attempt import Ended
from reforward.domain.candidate import Proposal
from reforward.ledger.views import every

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("mini") is None, reason="mini-swe-agent is not installed: pip install mini-swe-agent"
    ),
]
KEY = "sk-not-a-real-key"


def test_mini_swe_agent_submits_through_the_door(tmp_path):
    script = (
        use("bash", command="cat brief.md && ls -R source"),
        use("bash", command="echo '# quicker' > source/forward.py && reforward ask measure source"),
        use("bash", command="reforward ask submit source --reason 'half the work'; echo key $OPENAI_API_KEY"),
        use("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        say("done"),
    )
    with scripted_server(*script) as (url, asked):
        around = environment() | {
            "OPENAI_API_KEY": KEY, "OPENAI_API_BASE": f"{url}/v1", "OPENAI_BASE_URL": f"{url}/v1",
            "HOME": str(tmp_path / "user"), "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }  # fmt: skip
        house, journal, _ = run(tmp_path, "mini-swe-agent:openai/scripted", around=around)
    (ended,) = every(house.ledger, Ended)
    transcript = house.ledger.blobs.get(ended.transcript).decode()
    assert ended.how == "done", transcript[-3000:]
    assert journal.incumbent.files[0].text == "# quicker\n"
    assert [(p.author, p.reason) for p in every(house.ledger, Proposal)] == [("mini", "half the work")]
    told = str(asked[-1][2]["messages"])
    assert "Make this forward pass faster" in told
    assert "promising" in told
    assert KEY not in transcript
    assert len(list(Path(tmp_path).glob("agents/*/brief.md"))) == 1
