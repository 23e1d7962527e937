"""A server that answers every POST at once with the same few bytes: the generator is measured against it.

`python -m inference_recommender.load_generator.null_server` listens on a free port of loopback, prints it, and ends
when its standard input closes. Of a request it reads the Content-Length only.
"""

import asyncio
import os
import re
import sys
from typing import cast

COMMAND = (sys.executable, "-m", "inference_recommender.load_generator.null_server")
BODY = b'{"outputs":[{"name":"OUTPUT","datatype":"BYTES","shape":[1,1],"data":["null"]}]}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r", re.IGNORECASE)


class NullProtocol(asyncio.Protocol):
    def __init__(self) -> None:
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        held = self._held + data if self._held else data
        head_end = held.find(b"\r\n\r\n") + 4
        while head_end > 3:
            length = LENGTH.search(held, 0, head_end)
            end = head_end + (int(length[1]) if length else 0)
            if len(held) < end:
                break
            self._transport.write(ANSWER)
            held = held[end:]
            head_end = held.find(b"\r\n\r\n") + 4
        self._held = held


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(NullProtocol, "127.0.0.1", 0)
    closed = asyncio.Event()

    def read_stdin() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            closed.set()

    loop.add_reader(sys.stdin.fileno(), read_stdin)
    print(server.sockets[0].getsockname()[1], flush=True)
    await closed.wait()


if __name__ == "__main__":
    import uvloop  # whoever imports COMMAND needs none

    uvloop.run(_serve())
