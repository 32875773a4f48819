"""The command, a real engine and the official MCP client over stdio, on a tiny random Llama."""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from reforward.corpus.tiny import write_llama
from reforward.ledger.store import SqlLedger

pytestmark = pytest.mark.real
STEP = "        spec, weights = self.spec, self.weights\n        x = F"
OPTIONS = ("--length-scale", "0.0625", "--requests", "3", "--min-gain", "0.1", "--threads", "1")


def server(folder: Path, *more: str) -> StdioServerParameters:
    environment = {"REFORWARD_HOME": str(folder / "home"), "REFORWARD_CACHE": str(folder / "cache"), "PATH": os.defpath}
    words = ["-m", "reforward.cli.main", "mcp", str(folder / "tiny"), *OPTIONS, *more]
    return StdioServerParameters(command=sys.executable, args=words, env=environment)


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return answer.structured_content


def test_an_agent_over_stdio_and_its_results_after_a_restart(tmp_path):
    write_llama(tmp_path / "tiny")
    jobs: dict[str, str] = {}

    async def first() -> None:
        async with Client(stdio_client(server(tmp_path)), read_timeout_seconds=300) as client:
            stock = (await call(client, "read_source", of="stock"))["text"]
            assert STEP in stock
            slower = stock.replace(STEP, f"        import time; time.sleep(0.02)\n{STEP}")
            broken = stock.replace(STEP, f"        1 / 0\n{STEP}")
            costs = await call(client, "profile", files={}, base="stock", wait_s=240)
            assert any(op["op"] == "aten::mm" for op in costs["result"]["ops"]), costs
            measured = await call(client, "measure", files={"forward.py": slower}, wait_s=240)
            assert measured["result"]["ruling"]["reason"] in ("slower", "disturbed"), measured
            failed = await call(client, "submit", files={"forward.py": broken}, reason="no", wait_s=240)
            assert (failed["result"]["ruling"], failed["result"]["reason"]) == ("reject", "failed")
            assert "1 / 0" in failed["result"]["log"]
            verdict = await call(client, "submit", files={"forward.py": slower}, reason="rests", wait_s=240)
            assert verdict["result"]["reason"] in ("slower", "disturbed")
            jobs["measure"], jobs["submit"] = measured["id"], verdict["id"]

    async def second() -> None:
        async with Client(stdio_client(server(tmp_path, "--resume")), read_timeout_seconds=300) as client:
            for kind, job in jobs.items():
                found = await call(client, "result", job=job, wait_s=0)
                assert (found["kind"], found["state"]) == (kind, "done")
            authors = {row["author"] for row in (await call(client, "history"))["tried"]}
            assert len(authors) == 1
            assert "before the restart" not in authors

    anyio.run(first)
    anyio.run(second)
    ledger = SqlLedger(tmp_path / "home" / "ledger.db", tmp_path / "home" / "blobs")
    assert ledger.verify() > 10
    assert len(list(ledger.records("run"))) == 1
