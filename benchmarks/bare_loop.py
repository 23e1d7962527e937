"""The least that one process can do to load a server over HTTP: wait, receive, send, for each answer.

  python benchmarks/bare_loop.py URL CONCURRENCY SECONDS BODY_FILE OUT_FILE

No answer is parsed, checked or reported: three system calls a request, and the time of each answer.
What a load generator takes beside this is its own; what this takes is the kernel's. Writes milliseconds.
"""

import json
import select
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit


def main() -> int:
    url, concurrency, seconds, body_file, out = sys.argv[1:]
    body = Path(body_file).read_bytes()
    place = urlsplit(url)
    assert place.hostname is not None
    head = f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    connections: dict[int, socket.socket] = {}
    waiting = select.epoll()
    for _ in range(int(concurrency)):
        connection = socket.create_connection((place.hostname, place.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        waiting.register(connection.fileno(), select.EPOLLIN)
        connections[connection.fileno()] = connection
    now = time.perf_counter()
    end, sent, milliseconds = now + float(seconds), dict.fromkeys(connections, now), []
    for connection in connections.values():
        connection.send(request)
    while now < end:
        for number, _ in waiting.poll():
            connection = connections[number]
            connection.recv(65536)
            now = time.perf_counter()
            milliseconds.append((now - sent[number]) * 1000)
            sent[number] = now
            connection.send(request)
    Path(out).write_text(json.dumps(milliseconds[len(milliseconds) // 10 :]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
