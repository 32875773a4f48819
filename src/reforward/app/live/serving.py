"""`serve`: opens engine and ledger, finds the best accepted forward, and serves it until a signal comes."""

import asyncio
import json
import os
import resource
import secrets
import signal
import socket
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn

from reforward.app.config import Config, load_config
from reforward.app.live.deployments import best_choice, choose
from reforward.app.subjects import Loaded, load_subject, named, open_engine
from reforward.domain.contract import Contract
from reforward.domain.errors import BadInput, ReforwardError, Unavailable
from reforward.domain.spec import Limits
from reforward.engine.cpu import CpuEngine
from reforward.ledger.store import SqlLedger
from reforward.serve.admin import Search, admin_routes
from reforward.serve.front import Front, Observe
from reforward.serve.http import Service, make_app, make_routes
from reforward.serve.hurry import Hurried
from reforward.serve.metrics import Metrics
from reforward.serve.protocol import Refused
from reforward.serve.scheduler import SPARE
from reforward.serve.switch import Choice, Shape, Switch

CHUNK = 64
"""Tokens of prompts in one call: what a decode that is due may have to wait for."""
LENGTH = 2048
"""Positions of a request, if the model has as many."""
DRAIN_S = 60
"""In which requests in service may end after a signal to stop."""
EXPIRY_S = 5.0
LEAST_STEP_S, SLOWEST = 10.0, 50.0
"""Deadline of a call of later workers: seconds at least, and times what a call takes the first one."""
FILES = 65536
"""Open sockets, if the machine allows so many."""
CONTRACT = Contract(numerics="reassociated")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a user chose for one server."""

    host: str = "127.0.0.1"
    port: int = 8000
    candidate: str = ""
    """Id of what to begin with; the best accepted if empty, `stock` for the stock forward."""
    slots: int = 4
    length: int | None = None
    queue: int = 64
    exact: bool = False
    threads: int | None = None

    def __post_init__(self) -> None:
        for name, least, most in (("slots", 1, 256), ("queue", 0, 100_000), ("length", 8, 1 << 20), ("port", 0, 65535)):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise BadInput(f"--{name} must lie between {least} and {most}, got {value}")


class Serving:
    """One server. `run` blocks until it has been told to stop."""

    def __init__(
        self, loaded: Loaded, engine: CpuEngine, ledger: SqlLedger, config: Config, setup: Setup, *,
        tell: Callable[[str], None], observe: Observe | None,
    ) -> None:  # fmt: skip
        assert loaded.spec is not None
        assert loaded.tokenizer is not None
        self.loaded, self.config, self.setup, self.tell, self.observe = loaded, config, setup, tell, observe
        self.ledger, self.engine = ledger, engine
        self.decode = loaded.tokenizer.decode
        self.key = secrets.token_urlsafe(24)
        self.address = ""
        """`http://HOST:PORT`, once it listens."""
        self.error: BaseException | None = None
        self.search: Search | None = None
        """Looks for a faster forward beside the server, if anything does."""
        length = setup.length or min(LENGTH, loaded.spec.max_positions)
        self.first = (
            self.choose(setup.candidate) if setup.candidate else best_choice(ledger, loaded, engine.target, CONTRACT)
        )
        slots = setup.slots + SPARE
        limits = Limits(slots=slots, length=length, tokens=slots + CHUNK, rows=max(slots, CHUNK))
        self.switch = Switch(
            engine, loaded.stock, CONTRACT, Shape(limits=limits, chunk=CHUNK, exact=setup.exact),
            record=ledger.append, tell=tell, ended=lambda sequence: None,
        )  # fmt: skip
        self.metrics = Metrics(loaded.subject.name)
        self.front: Front | None = None
        self.service = Service(
            model=loaded.subject.name,
            created=int(time.time()),
            words=loaded.tokenizer,
            vocab=loaded.spec.vocab,
            length=length,
            metrics=self.metrics,
            front=self._front,
            api_key=config.api_key,
        )
        self.server = _server(self._app(), self._drain)

    def choose(self, candidate: str) -> Choice:
        """A candidate of the ledger by id, and where it was judged."""
        return choose(self.ledger, self.loaded, self.engine.target, CONTRACT, candidate)

    @property
    def busy(self) -> bool:
        """Answers are in flight."""
        return self.front is not None and self.front.load > 0

    def run(self) -> None:
        """Listen, warm up, serve, drain."""
        _more_files()
        listener = listen(self.setup.host, self.setup.port)
        self.address = f"http://{self.setup.host}:{listener.getsockname()[1]}"
        with _announced(self.config.home, {"address": self.address, "key": self.key, "pid": os.getpid()}):
            self.tell(f"{self.service.model} at {self.address}/v1, warming up")
            self.server.run(sockets=[listener])
        if self.error is not None:
            raise self.error

    def _app(self) -> Any:
        routes = [*make_routes(self.service), *admin_routes(self.key, self._front, self.choose, lambda: self.search)]
        return make_app(self.service, routes, self._life)

    def _front(self) -> Front:
        if self.front is None:
            raise Refused("the server is starting", status=503, headers={"Retry-After": "5"})
        return self.front

    @asynccontextmanager
    async def _life(self) -> AsyncGenerator[None]:
        setup = self.setup
        self.front = Front(
            self.switch, self.metrics, self.decode, slots=setup.slots, queue=setup.queue, observe=self.observe
        )
        _follow(self.metrics, self.front, setup.slots * self.service.length)
        tasks = [asyncio.create_task(self._start()), asyncio.create_task(self._tend())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.to_thread(self.switch.close)

    async def _start(self) -> None:
        try:
            await asyncio.to_thread(self.switch.start, self.first)
            pace = self.switch.driver.lanes["main"].pace
            usual = CHUNK * pace.token_s + pace.decode_s
            step_s = min(CONTRACT.max_step_s, max(LEAST_STEP_S, SLOWEST * usual))
            self.engine.deadlines = replace(self.engine.deadlines, step_s=step_s)
        except ReforwardError as error:
            self.error = error
            self.server.should_exit = True

    async def _tend(self) -> None:
        """Now and then: let go of workers that nobody needs, and end if the driver's thread has."""
        while True:
            await asyncio.sleep(EXPIRY_S)
            if self.switch.driver.died is not None:
                self.error, self.server.should_exit = self.switch.driver.died, True
            elif self.switch.state == "ready":
                await asyncio.to_thread(self.switch.expire)

    def _drain(self) -> None:
        if self.front is not None and not self.front.draining:
            self.front.draining = True
            self.tell(f"draining {self.front.load} requests")


def serve(
    subject: str, setup: Setup, *, tell: Callable[[str], None], observe: Observe | None = None
) -> None:  # fmt: skip
    """Serve SUBJECT until a signal comes. `observe` is told of every call that ends."""
    with open_serving(subject, setup, tell=tell, observe=observe) as serving:
        serving.run()


@contextmanager
def open_serving(
    subject: str, setup: Setup, *, tell: Callable[[str], None], observe: Observe | None = None
) -> Generator[Serving]:
    """Weights, engine and ledger; all is closed at the end."""
    if named(subject).host != "lm":
        raise BadInput(f"{subject} is a module; only language models can be served")
    config = load_config(threads=setup.threads)
    tell(f"opening {subject}: weights, engine, ledger")
    loaded = load_subject(subject, config)
    ledger = SqlLedger(config.ledger, config.blobs)
    engine = open_engine(loaded, config, CONTRACT)
    try:
        ledger.append(loaded.subject, loaded.stock, engine.target)
        yield Serving(loaded, engine, ledger, config, setup, tell=tell, observe=observe)
    finally:
        engine.close()


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; `Unavailable` if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"port {port} of {host} cannot be used: {error.strerror}; choose another with --port"
        ) from None
    return listener


def _server(app: Any, drain: Callable[[], None]) -> uvicorn.Server:
    config = uvicorn.Config(
        app, http=Hurried, ws="none", log_level="error", access_log=False, timeout_keep_alive=30,
        timeout_graceful_shutdown=DRAIN_S, backlog=2048,
    )  # fmt: skip

    class Draining(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            """End in order. uvicorn's own would raise the signal again at the end, before anything of ours is closed."""
            drain()
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True

    return Draining(config)


def _follow(metrics: Metrics, front: Front, positions: int) -> None:
    driver, switch = front.switch.driver, front.switch

    def lanes() -> list[Any]:
        return list(driver.lanes.values())

    metrics.follow(
        "vllm:num_requests_running",
        "Answers with a slot.",
        lambda: sum(len(lane.scheduler.running) for lane in lanes()),
    )
    metrics.follow(
        "vllm:num_requests_waiting", "Answers without a slot.",
        lambda: sum(lane.scheduler.waiting for lane in lanes()) + len(driver.homeless),
    )  # fmt: skip
    metrics.follow(
        "vllm:kv_cache_usage_perc",
        "Positions held, of all; 1 is full.",
        lambda: sum(lane.held for lane in lanes()) / positions,
    )
    metrics.follow("reforward_ready", "1 if warm and not draining.", lambda: float(front.ready))
    metrics.follow("reforward_deployments", "Deployments since the start.", lambda: len(switch.deployed))
    metrics.follow("reforward_workers_lost", "Workers that died in service.", lambda: switch.crashes)
    metrics.follow("reforward_requests_resumed", "Times an answer was begun anew.", lambda: driver.resumed)
    metrics.follow("reforward_slots_handed_over", "Slots that went to another worker.", lambda: driver.handed)


@contextmanager
def _announced(home: Path, about: dict[str, Any]) -> Generator[None]:
    """Where the verbs find the server, readable by its owner alone."""
    path = home / "serving.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(about, file)
    fresh.replace(path)
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            if json.loads(path.read_text())["pid"] == about["pid"]:
                path.unlink()


def _more_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
