"""A program: a server that streams tokens at a fixed pace, as cheaply as a Python program can. Prints its port.

Its loop waits with `select`, whose timeouts are exact; those of `epoll` are rounded up to milliseconds, which would hide or double
what is measured.
"""

import asyncio
import selectors
import sys

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"id":"c","object":"text_completion","choices":[{"index":0,"text":" word","finish_reason":null}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tokens: int, pause_s: float) -> None:
    """Answer every request of a connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            await reader.readexactly(size)
            writer.write(HEAD)
            for _ in range(tokens):
                await asyncio.sleep(pause_s)
                writer.write(_chunk(TOKEN))
            writer.write(_chunk(USAGE % tokens) + b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionResetError):
        writer.close()


async def main(tokens: int, pause_s: float) -> None:
    """Serve until killed."""
    server = await asyncio.start_server(lambda r, w: _client(r, w, tokens, pause_s), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(main(int(sys.argv[1]), float(sys.argv[2])))
