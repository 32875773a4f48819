"""The official MCP client against the door, over streamable HTTP; stdio is tried with a real model in test_real.py."""

import anyio
import pytest
from mcp import Client, MCPError

from door.house import QUICKER, at_work, make_desk, opened
from reforward.mcp.door import open_door

TOOLS = {"brief", "read_source", "measure", "profile", "submit", "result", "status", "history", "diff"}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_works_through_the_door(tmp_path, mode):
    desk = make_desk(tmp_path)

    async def work(url: str) -> None:
        async with Client(url, mode=mode) as client:
            tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == TOOLS
            assert all(tool.description for tool in tools)
            brief = (await client.call_tool("brief", {})).content[0].text
            assert f"curl -s {url.removesuffix('/mcp')}/measurements" in brief
            source = await client.call_tool("read_source", {"of": "stock"})
            assert source.structured_content["text"] == "# stock\n"
            tree = {file.path: file.text for file in QUICKER.files}
            asked = (await client.call_tool("measure", {"files": tree, "wait_s": 0})).structured_content
            done = (await client.call_tool("result", {"job": asked["id"], "wait_s": 60})).structured_content
            assert done["result"]["ruling"]["reason"] == "promising"
            verdict = (
                await client.call_tool("submit", {"files": tree, "reason": "half", "wait_s": 60})
            ).structured_content
            assert verdict["result"]["ruling"] == "accept"
            costs = await client.call_tool("profile", {"files": {}, "base": "incumbent", "wait_s": 60})
            assert costs.structured_content["result"]["ops"]
            history = (await client.call_tool("history", {})).structured_content["tried"]
            assert {row["author"] for row in history} == {"ada"}
            assert (await client.call_tool("status", {})).structured_content["incumbent"] == QUICKER.id
            assert "+# quicker" in (await client.call_tool("diff", {"a": "incumbent"})).structured_content["diff"]

    with open_door(opened(desk)) as guests, at_work(desk):
        anyio.run(work, f"{guests.invite('ada')}/mcp")


def test_mistakes_are_told_in_words(tmp_path):
    desk = make_desk(tmp_path)

    async def work(url: str) -> None:
        async with Client(url) as client:
            for tool, arguments, says in (
                ("measure", {"files": {"kernel.cpp": ""}}, "base='stock'"),
                ("measure", {"files": "forward.py"}, "dict"),
                ("measure", {}, "required"),
                ("submit", {"files": {}, "base": "stock", "reason": ""}, "is the stock forward"),
                ("result", {"job": "nothing"}, "there is no job"),
                ("diff", {"a": "zzzz"}, "zzzz"),
                ("optimise", {}, "Unknown tool"),
            ):
                try:
                    answer = await client.call_tool(tool, arguments)
                    failed, text = answer.is_error, answer.content[0].text
                except MCPError as error:
                    failed, text = True, str(error)
                assert failed, tool
                assert says in text, text

    with open_door(opened(desk)) as guests, at_work(desk):
        anyio.run(work, f"{guests.invite('ada')}/mcp")
