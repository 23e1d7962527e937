"""Requests with AWS Signature Version 4, and how they are kept fresh while they are being sent.

A signature holds for five minutes. Every request is signed before the clock starts; from then on they are signed again
one at a time, spread evenly over `CYCLE_S`: the hot path only ever takes bytes that lie ready, and is held up for the
time of one signature (about 0.1 ms) at most. The algorithm is botocore's own.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from inference_recommender.load_generator.requests import Target

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

SERVICE = "sagemaker"
"""What requests to the runtime are signed for."""
CYCLE_S = 120.0


class Signer:
    def __init__(
        self,
        target: Target,
        headers: Mapping[str, str],
        bodies: Sequence[bytes],
        region: str,
        credentials: "Callable[[], ReadOnlyCredentials]",
    ) -> None:
        """`credentials` gives those that hold now, and may take its time to fetch them."""
        self._target = target
        self._headers = headers
        self._bodies = bodies
        self._region = region
        self._credentials = credentials

    def sign_all(self) -> list[bytes]:
        found = self._credentials()
        return [self._signed(body, found) for body in self._bodies]

    async def keep_fresh(self, requests: list[bytes]) -> None:
        """Replace `requests`, made by `sign_all`, one by one for ever. Raises what `credentials` raises."""
        while True:
            found = await asyncio.to_thread(self._credentials)
            for number, body in enumerate(self._bodies):
                await asyncio.sleep(CYCLE_S / len(self._bodies))
                requests[number] = self._signed(body, found)

    def _signed(self, body: bytes, credentials: "ReadOnlyCredentials") -> bytes:
        from botocore.auth import SigV4Auth  # takes a while to import, and most runs need none of it
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method="POST", url=self._target.url, data=body, headers=dict(self._headers))
        SigV4Auth(credentials, SERVICE, self._region).add_auth(request)
        return self._target.message(dict(request.headers.items()), body)
