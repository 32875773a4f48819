"""A real server in this process: engine, workers, HTTP, on a tiny random model whose tokens are bytes."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders

from reforward.app.live.serving import Serving, Setup, open_serving
from reforward.corpus.tiny import write_llama

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


def write_model(folder: Path) -> Path:
    """The tiny Llama with a chat template; returns its folder."""
    write_llama(folder)
    core: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    core.decoder = decoders.ByteLevel()
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


@contextmanager
def running(folder: Path, home: Path, **setup: Any) -> Generator[Serving]:
    """A server that is warm; ended at the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REFORWARD_HOME", str(home))
        patch.setenv("REFORWARD_CACHE", str(home / "cache"))
        said: list[str] = []
        with open_serving(str(folder), Setup(**({"port": 0, "threads": 1} | setup)), tell=said.append) as serving:
            thread = threading.Thread(target=serving.run)
            thread.start()
            try:
                wait_ready(serving)
                yield serving
            finally:
                serving.server.should_exit = True
                thread.join(30)
                assert not thread.is_alive(), said


def wait_ready(serving: Serving) -> None:
    """Until /health says so."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if serving.address and get(serving, "/health")[0] == 200:
            return
        time.sleep(0.02)
    raise AssertionError("the server did not become ready")


def get(serving: Serving, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status and body (JSON if it is) of one request; POST if there is a body."""
    request = urllib.request.Request(serving.address + path, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, data = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, data = error.code, error.read()
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ConnectionError):
            raise
        return 0, b""
    try:
        return status, json.loads(data)
    except ValueError:
        return status, data


def post(serving: Serving, path: str, **body: Any) -> tuple[int, Any]:
    """The same with a JSON body; the model is filled in."""
    return get(serving, path, json.dumps({"model": serving.service.model} | body).encode())
