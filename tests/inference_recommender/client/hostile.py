"""Servers on loopback that do to a connection what a test says, and clients that are pointed at them."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import boto3
from botocore.config import Config

from inference_recommender.client import HttpServer, SageMakerEndpoint
from inference_recommender.client.inference import Server
from inference_recommender.client.servers import MAX_ANSWER_BYTES

LONG_S = 30.0
"""Bounds a hanging test; no answer depends on it."""
DRIP_S = 0.02
Conduct = Callable[[socket.socket], None]
Connect = Callable[..., HttpServer | SageMakerEndpoint]


@contextmanager
def behaving(conduct: Conduct, tls: ssl.SSLContext | None = None, receive_bytes: int | None = None) -> Iterator[str]:
    """Yields the URL of a server that does `conduct` to each connection, until the client hangs up."""

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if tls is None:
                conduct(connection)
            else:
                with tls.wrap_socket(connection, server_side=True) as wrapped:
                    conduct(wrapped)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        if receive_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept
    accepting.join(LONG_S)


def asked(connection: socket.socket) -> bytes:
    """Reads one request with its body and returns the body."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (part := connection.recv(65_536)):
            raise OSError("the client hung up")
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    (length,) = (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(65_536)
    return body


def sending(first: bytes, again: bytes = b"", every_s: float = DRIP_S) -> Conduct:
    """Answers a request with `first`, and then with `again` and again."""

    def conduct(connection: socket.socket) -> None:
        asked(connection)
        connection.sendall(first)
        end = time.monotonic() + LONG_S
        while again and time.monotonic() < end:
            connection.sendall(again)
            time.sleep(every_s)

    return conduct


def deaf(connection: socket.socket) -> None:
    """Neither reads nor writes."""
    time.sleep(LONG_S)


def over_http(url: str, timeout_s: float = LONG_S, max_answer_bytes: int = MAX_ANSWER_BYTES) -> HttpServer:
    return HttpServer(url, "m", timeout_s=timeout_s, max_answer_bytes=max_answer_bytes)


def over_sagemaker(url: str, timeout_s: float = LONG_S, max_answer_bytes: int = MAX_ANSWER_BYTES) -> SageMakerEndpoint:
    """Returns an endpoint with the settings that it has against AWS, but for the address. Each operation on its socket
    may take long: what bounds an attempt is the attempt.
    """
    config = Config(connect_timeout=LONG_S, read_timeout=LONG_S, retries={"total_max_attempts": 1})
    client = boto3.client("sagemaker-runtime", endpoint_url=url, config=config, region_name="us-east-1")
    return SageMakerEndpoint("e", timeout_s=timeout_s, client=client, max_answer_bytes=max_answer_bytes)


BOTH: tuple[Callable[..., Server], ...] = (over_http, over_sagemaker)
