"""What a run needs of its traffic, be it a closed or an open loop."""

from collections.abc import Sequence
from typing import Protocol

from inference_recommender.load_generator.closed_loop import ClosedLoop
from inference_recommender.load_generator.loops import OpenLoop
from inference_recommender.load_generator.outgoing import Outgoing
from inference_recommender.load_generator.plan import LoadPlan
from inference_recommender.load_generator.pool import Pool
from inference_recommender.load_generator.records import Records
from inference_recommender.load_generator.traffic import schedule


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

    async def end(self) -> None:
        """Let nothing new become due, let what is under way return for a while, hang up, and record what did not."""


def load(plan: LoadPlan, outgoing: Outgoing, records: Records) -> Load:
    """The traffic that `plan` asks for."""
    if plan.arrivals is not None:
        return OpenLoop(plan.arrivals, plan.job_duration_s, outgoing, records, plan.share)
    assert plan.traffic_pattern is not None, "held by LoadPlan"
    return ClosedLoop(schedule(plan.traffic_pattern, plan.job_duration_s), outgoing, records, plan.share)


def connections(plan: LoadPlan) -> int:
    """The most that the run will have."""
    if plan.arrivals is not None:
        return max(plan.share.count(plan.arrivals.connections), 1)
    assert plan.traffic_pattern is not None, "held by LoadPlan"
    changes = schedule(plan.traffic_pattern, plan.job_duration_s).changes
    return max(plan.share.count(max(change.users for change in changes)), 1)
