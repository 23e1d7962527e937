"""Any KServe v2 server over HTTP: Triton itself, an ECS service behind its load balancer, KServe."""

from types import TracebackType
from typing import Self
from urllib.parse import quote

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, TimeoutError

from inference_recommender.client.errors import Refused, TimedOut, Unreachable
from inference_recommender.client.kserve import Body

HEADER_SIZE = "Inference-Header-Content-Length"
CONNECT_TIMEOUT_S = 1.0


class HttpServer:
    """`url` is the server's (http://host:8000); `timeout_s` bounds one attempt's wait for the answer."""

    def __init__(
        self, url: str, model: str, version: str | None = None, *, timeout_s: float = 5.0, connections: int = 16
    ) -> None:
        path = f"/v2/models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")
        self._url = f"{url.rstrip('/')}{path}/infer"
        self._timeout_s = timeout_s
        timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, timeout_s), read=timeout_s)
        self._pool = urllib3.PoolManager(maxsize=connections, timeout=timeout, retries=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._pool.clear()

    def send(self, request: Body) -> Body:
        try:
            response = self._pool.request("POST", self._url, body=request.content, headers=_headers(request))
        except ConnectTimeoutError as error:  # a timeout too, but nothing was sent
            raise Unreachable(self._url, error) from error
        except TimeoutError as error:
            raise TimedOut(self._url, self._timeout_s) from error
        except HTTPError as error:
            raise Unreachable(self._url, error) from error
        if response.status != 200:
            raise Refused(self._url, response.status, response.data.decode(errors="replace"))
        size = response.headers.get(HEADER_SIZE, "")
        return Body(content=response.data, header_size=int(size) if size.isdecimal() else None)


def _headers(request: Body) -> dict[str, str]:
    if request.header_size is None:
        return {"Content-Type": "application/json"}
    return {"Content-Type": "application/octet-stream", HEADER_SIZE: str(request.header_size)}
