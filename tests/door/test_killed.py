"""`kill -9` at random moments: the soak of bench/kill_soak.py, as long as a test may be."""

import json
import os
import subprocess
import sys

import pytest

from house.source import ROOT

pytestmark = pytest.mark.real
KILLS = 5


def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been():
    words = [sys.executable, str(ROOT / "bench" / "kill_soak.py"), "--kills", str(KILLS), "--seed", "7"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, env={"PATH": os.defpath}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert sum(figures["kills"].values()) == KILLS
    assert len(figures["kills"]) > 1
    assert figures["problems"] == []
    assert figures["jobs"] == figures["answered"] > 0
    assert figures["attempts"] >= figures["of_them_ended"] > 0
