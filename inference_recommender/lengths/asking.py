"""Posts requests to a server over a connection that is kept, and keeps a load of others under way beside them."""

import contextlib
import http.client
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from inference_recommender.client import SageMakerEndpoint
from inference_recommender.client.kserve import Body
from inference_recommender.load_generator.plan import Arrivals, LoadPlan, StoppingConditions
from inference_recommender.load_generator.plan import SageMakerEndpoint as NamedEndpoint
from inference_recommender.load_generator.process import GeneratorProcess
from workloads import Unavailable
from workloads.files import from_here

Post = Callable[[bytes], bytes]
"""(body of a KServe request in JSON) → the answer's. Raises `Unavailable` or `InferenceFailed`."""

TIMEOUT_S = 60.0
"""SageMaker gives an invocation up after so long."""
LOAD_STARTS_S = 60.0
LONGEST_LOAD_S = 3600.0
CONNECTIONS = 64


class Connection:
    """Posts to a URL over one connection that is kept. A context manager."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._path = f"{self._parts.path}?{self._parts.query}" if self._parts.query else self._parts.path
        self.name = f"{self._parts.scheme}://{self._parts.netloc}"
        """For messages; without the path, which holds a key where the local account serves."""
        self._connection = self._connected()

    def __call__(self, body: bytes) -> bytes:
        try:
            try:
                status, content = self._asked(body)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self._connection.close()  # the server has closed a connection that was idle
                status, content = self._asked(body)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{self.name} does not answer: {error}. Start the server, or name another.") from error
        if status != http.HTTPStatus.OK:
            said = content.decode("utf-8", "replace")[:300]
            raise Unavailable(f"{self.name} answered {status}: {said.rstrip('.')}.")
        return content

    def _asked(self, body: bytes) -> tuple[int, bytes]:
        self._connection.request("POST", self._path, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        return response.status, response.read()

    def _connected(self) -> http.client.HTTPConnection:
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._parts.netloc, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(self._parts.netloc, timeout=TIMEOUT_S)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def to_endpoint(endpoint: SageMakerEndpoint) -> Post:
    """Returns a way to post to an endpoint of AWS by its name."""

    def post(body: bytes) -> bytes:
        return endpoint.send(Body(content=body), TIMEOUT_S).content

    return post


@contextlib.contextmanager
def beside_load(
    payloads: Path,
    folder: Path,
    invocations_per_minute: float,
    *,
    url: str | None = None,
    endpoint: NamedEndpoint | None = None,
) -> Iterator[None]:
    """Keeps Poisson arrivals of the payloads under way at a rate while the context lasts. Raises `Unavailable` where
    they could not be sent.
    """
    plan = LoadPlan(
        url=url,
        endpoint=endpoint,
        payloads=payloads.resolve(),
        arrivals=Arrivals(
            invocations_per_minute=invocations_per_minute,
            duration_in_seconds=LONGEST_LOAD_S,
            connections=CONNECTIONS,
        ),
        stopping_conditions=StoppingConditions(flat_invocations="Continue"),
    )
    generator, under_way = GeneratorProcess.start(plan, folder), threading.Event()

    def listen() -> None:
        for event in generator.events():
            if event["event"] == "window":
                under_way.set()
        under_way.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        under_way.wait(LOAD_STARTS_S)
        yield
    finally:
        generator.request_stop()
        listener.join()
    outcome = generator.outcome()
    if outcome.summary is None:
        raise Unavailable(
            f"The load beside the survey was not sent: {outcome.reason.rstrip('.')}. See {from_here(folder)}."
        )
