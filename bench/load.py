"""A server in a process of its own, and an open-loop load on it: Azure's arrivals, streams read token by token.

A plain HTTP client on asyncio streams: on a machine of two cores a heavier one would be part of what is measured.
"""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reforward.app.config import environment, load_config
from reforward.domain.workload import Request
from reforward.traffic.packaged import packaged_trace

READY_S = 180.0


@dataclass(kw_only=True)
class Heard:
    """What one client was told."""

    prompt: int
    wanted: int
    sent_at: float = 0.0
    tokens: list[int] = field(default_factory=list[int])
    at: list[float] = field(default_factory=list[float])
    status: int = 0
    finished: str = ""
    error: str = ""

    @property
    def lost(self) -> bool:
        """Failed, refused, cut off or short."""
        return self.status != 200 or bool(self.error) or self.finished != "length" or len(self.tokens) < self.wanted

    @property
    def gaps(self) -> list[float]:
        """Seconds from token to token."""
        return [b - a for a, b in zip(self.at, self.at[1:], strict=False)]


class Server:
    """`reforward serve` (or `up`) as a process, and its admin routes."""

    def __init__(self, subject: str, home: Path, *options: str, verb: str = "serve") -> None:
        around = environment() | {"REFORWARD_HOME": str(home), "REFORWARD_CACHE": str(load_config().cache)}
        command = [sys.executable, "-m", "reforward.cli.main", verb, subject, "--port", "0", *options]
        home.mkdir(parents=True, exist_ok=True)
        self.log, self.home = home / "serve.log", home
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=around, stdout=log, stderr=log)
        self.model, self.host, self.port, self.key = Path(subject).name, "", 0, ""

    async def ready(self) -> None:
        """Until /health says so."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until and self.process.poll() is None:
            await asyncio.sleep(0.1)
            if (self.home / "serving.json").is_file():
                about = json.loads((self.home / "serving.json").read_text())
                self.host, _, port = about["address"].removeprefix("http://").partition(":")
                self.port, self.key = int(port), about["key"]
                try:
                    if (await self.call("GET", "/health"))[0] == 200:
                        return
                except ConnectionError:
                    continue
        raise SystemExit(f"the server is not ready: {self.log.read_text()[-2000:]}")

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One request of the admin's."""
        reader, writer = await self.send(method, path, body)
        try:
            status = await head(reader)
            return status, json.loads(await reader.read() or b"null")
        finally:
            writer.close()

    async def send(self, method: str, path: str, body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A request on a connection of its own."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        data = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self.host}",
            f"Authorization: Bearer {self.key}",
            "Connection: close",
        ]
        writer.write("\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode() + data)
        await writer.drain()
        return reader, writer

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


async def head(reader: asyncio.StreamReader) -> int:
    """Status of an answer, its headers read."""
    status = int((await reader.readline()).split()[1])
    while (await reader.readline()).strip():
        continue
    return status


async def ask(server: Server, heard: Heard, body: dict[str, Any]) -> None:
    """One streamed completion, noted token by token."""
    heard.sent_at = time.monotonic()
    try:
        reader, writer = await server.send("POST", "/v1/completions", body | {"stream": True, "return_token_ids": True})
        try:
            heard.status = await head(reader)
            while line := await reader.readline():
                if line.startswith(b"data: {"):
                    _note(heard, json.loads(line[6:]))
        finally:
            writer.close()
    except (OSError, asyncio.IncompleteReadError, ValueError, IndexError) as error:
        heard.error = heard.error or f"{type(error).__name__}: {error}"


def _note(heard: Heard, event: dict[str, Any]) -> None:
    if "error" in event:
        heard.error = event["error"]["message"]
        return
    for choice in event["choices"]:
        heard.tokens += choice["token_ids"]
        heard.at += [time.monotonic()] * len(choice["token_ids"])
        heard.finished = choice["finish_reason"] or heard.finished


def azure(scale: float, longest: int) -> list[Request]:
    """The packaged slice, token counts multiplied by `scale`, cut to `longest`."""
    return [
        Request(
            arrival_s=one.arrival_s,
            prompt_tokens=max(1, min(round(one.prompt_tokens * scale), longest // 2)),
            output_tokens=max(2, min(round(one.output_tokens * scale), longest // 2)),
        )
        for one in packaged_trace().requests
    ]


@asynccontextmanager
async def load(server: Server, requests: Sequence[Request], rate: float, seed: int) -> AsyncIterator[list[Heard]]:
    """Requests at the trace's own times, stretched to `rate` a second on average, over and over while the block runs.

    At its end all that were sent are waited for.
    """
    span = requests[-1].arrival_s - requests[0].arrival_s
    stretch = len(requests) / rate / span
    heard, draw, tasks = list[Heard](), random.Random(seed), set[asyncio.Task[None]]()

    async def drive() -> None:
        begun, number = time.monotonic(), 0
        while True:
            one = requests[number % len(requests)]
            due = begun + (one.arrival_s - requests[0].arrival_s + number // len(requests) * span) * stretch
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            mine = Heard(prompt=one.prompt_tokens, wanted=one.output_tokens)
            prompt = [draw.randrange(256) for _ in range(one.prompt_tokens)]
            body = {
                "model": server.model, "prompt": prompt, "max_tokens": one.output_tokens, "ignore_eos": True, "temperature": 0,
            }  # fmt: skip
            heard.append(mine)
            task = asyncio.create_task(ask(server, mine, body))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            number += 1

    driving = asyncio.create_task(drive())
    try:
        yield heard
    finally:
        driving.cancel()
        await asyncio.gather(*tasks)


def quantile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
