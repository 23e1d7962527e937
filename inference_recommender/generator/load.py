"""What a run needs of its traffic, be it a closed or an open loop."""

from collections.abc import Sequence
from typing import Protocol

from inference_recommender.generator.pool import Pool


class Load(Protocol):
    @property
    def pool(self) -> Pool: ...

    @property
    def end_s(self) -> float:
        """When the traffic ends, in seconds since the start."""

    @property
    def changes_s(self) -> Sequence[float]:
        """The moments after the start at which `change` is to be called, the first of them 0."""

    @property
    def lags_s(self) -> Sequence[float]:
        """How late the load itself was with what it had to do."""

    async def prepare(self) -> None:
        """What has to be done before the clock starts."""

    def change(self, second: float) -> None:
        """Do what the schedule says at `second`."""

    def end(self) -> None:
        """Send no more, and record what should have been sent by now."""
