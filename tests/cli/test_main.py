"""The command line as a user meets it: help, exit codes, JSON, and errors of one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = ["TIMESTAMP,ContextTokens,GeneratedTokens"] + [
    f"2023-11-16 18:15:{second:02d}.0000000,{100 + second},{10 + second}" for second in range(40)
]


def reforward(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "REFORWARD_HOME": str(tmp_path / "home"),
        "REFORWARD_CACHE": str(tmp_path / "cache"),
        "PATH": "/usr/bin:/bin",
    }
    return subprocess.run(
        [sys.executable, "-m", "reforward.cli.main", *words],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        [], ["demo"], ["optimize"], ["measure"], ["submit"], ["log"], ["show"], ["diff"], ["best"], ["export"],
        ["verify"], ["trace"], ["trace", "summary"], ["doctor"],
    ],
)  # fmt: skip
def test_every_verb_has_help(tmp_path, words):
    done = reforward(tmp_path, *words, "--help")
    assert done.returncode == 0
    assert "Usage:" in done.stdout
    assert "..." not in done.stdout.replace("[ARGS]...", ""), (
        "nothing is cut in 80 columns: keep first sentences under 62 characters"
    )
    assert not words or words == ["trace"] or "Exit codes: 0 done" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["optimize", "nonsense"], 2, "is none of"),
        (["optimize", "smollm2", "--budget", "10"], 2, "such as 10m"),
        (["optimize", "smollm2", "--budget", "5m", "--length-scale", "3"], 2, "--length-scale"),
        (["optimize", "smollm2", "--min-gain", "-1"], 2, "--min-gain must lie in [0, 10)"),
        (["optimize", "smollm2", "--traffic", "nope.csv"], 2, "cannot read the trace nope.csv: No such file"),
        (["optimize", "package.module:make", "--traffic", "nope.csv"], 2, "--traffic is for language models"),
        (["optimize", "smollm2", "--candidates", "0"], 2, "Invalid value for '--candidates'"),
        (["optimize", "smollm2", "--budget", "0m"], 2, "must be positive"),
        (["submit", "smollm2", "nowhere"], 2, "'nowhere' is not a folder"),
        (["log", "--limit", "0"], 2, "Invalid value for '--limit'"),
        (["log", "--limit", "-3"], 2, "Invalid value for '--limit'"),
        (["measure", "missing/subject.py", "."], 2, "does not exist"),
        (["show", "abcdef"], 2, "has no record"),
        (["show", "x"], 2, "at least"),
        (["best", "smollm2"], 2, "nothing was accepted"),
        (["best", "nonsense"], 2, "no subject that the ledger knows"),
        (["trace", "summary", "nope.csv"], 2, "nope.csv"),
        (["log", "--colour"], 2, "No such option"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, words, code, says):
    done = reforward(tmp_path, *words)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["measure", "s" * 5000, "tree"], ["measure", "smollm2", "tree"]])
def test_what_the_system_refuses_is_one_line_and_exit_code_3(tmp_path, words):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/forward.py").write_text("")
    (tmp_path / "cache").write_text("in the way of the folder")
    done = reforward(tmp_path, *words)
    assert done.returncode == 3
    assert "check the path, its rights and the free disk" in done.stderr
    assert "Traceback" not in done.stderr


def test_weights_are_not_opened_for_what_cannot_be_measured(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/other.py").write_text("")
    for words in (["submit", "smollm2", "tree"], ["measure", "smollm2", "tree"]):
        done = reforward(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "has no forward.py" in done.stderr
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "home").exists()


def test_an_interrupt_is_one_line_even_while_modules_load(tmp_path):
    slow = tmp_path / "typer.py"
    slow.write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    done = subprocess.run(
        [sys.executable, "-m", "reforward.cli.main", "log"], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin"}, timeout=30,
    )  # fmt: skip
    assert done.returncode == 130
    assert done.stderr.startswith("reforward: interrupted")
    assert len(done.stderr.splitlines()) == 1


def test_trace_summary_as_json(tmp_path):
    (tmp_path / "t.csv").write_text("\n".join(ROWS))
    done = reforward(tmp_path, "trace", "summary", "t.csv", "--json")
    facts = json.loads(done.stdout)
    assert facts["requests"] == 40
    assert facts["prompt"]["max"] == 139


def test_an_empty_ledger_says_what_to_run(tmp_path):
    assert "reforward demo" in reforward(tmp_path, "log").stdout
    assert json.loads(reforward(tmp_path, "log", "--json").stdout) == []
    assert "0 records" in reforward(tmp_path, "verify").stdout


def test_the_version_is_the_package_version(tmp_path):
    from reforward import __version__

    assert reforward(tmp_path, "--version").stdout.strip() == __version__


def test_an_unknown_setting_in_the_environment_is_an_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "reforward.cli.main", "log"], capture_output=True, text=True, check=False,
        env={"REFORWARD_HOEM": "x", "PATH": "/usr/bin"}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "hoem" in done.stderr
