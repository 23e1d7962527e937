"""Instances of a simulated fleet: how they start, serve and stop on SageMaker and on ECS. Pure.

SageMaker: an endpoint is Updating while it adds or removes instances, and rejects other changes meanwhile
(https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateEndpointWeightsAndCapacities.html). An instance is
paid for from the request until it is gone.

ECS with a capacity provider: each task has its own instance. A task starts at once on an idle instance. Otherwise the
provider starts instances a minute later, but none while another one is younger than the warm-up. The instance of a
removed task is idle and goes after fifteen minutes
(https://docs.aws.amazon.com/AmazonECS/latest/developerguide/cluster-auto-scaling.html).
"""

import heapq
import math
from random import Random

from inference_recommender.simulate.policy import Timing
from inference_recommender.simulate.tracking import MINUTE_S


class SimulatedFleet:
    """The instances of a SageMaker endpoint: counts serving and paid ones, and changes both at their times."""

    def __init__(self, count: int, timing: Timing, random: Random) -> None:
        self.serving = count
        self.paid = count
        self.next_s = math.inf
        """Time of the next change."""
        self._timing = timing
        self._random = random
        self._changes: list[tuple[float, int, int]] = []
        """A heap of seconds, each with the changes of `serving` and `paid`."""
        self._updating_until_s = -math.inf

    def advance(self, now_s: float) -> None:
        while self._changes and self._changes[0][0] <= now_s:
            _, serving, paid = heapq.heappop(self._changes)
            self.serving += serving
            self.paid += paid
        self.next_s = self._changes[0][0] if self._changes else math.inf

    def takes_changes(self, now_s: float) -> bool:
        """Returns whether instances can be added or removed now."""
        return now_s >= self._updating_until_s

    def add(self, count: int, now_s: float) -> float:
        """Returns when all of them serve."""
        self._updating_until_s = self._start(count, now_s)
        return self._updating_until_s

    def remove(self, count: int, now_s: float) -> float:
        """Stops serving with these instances now. Returns when the removal is complete."""
        self.serving -= count
        self._updating_until_s = now_s + self._timing.removal_s
        self._change(self._updating_until_s, paid=-count)
        return self._updating_until_s

    def lose(self, count: int, now_s: float) -> None:
        """Fails instances, which are then replaced."""
        self.serving -= count
        self.paid -= count
        self._start(count, now_s + self._timing.replacement_s)

    def _change(self, at_s: float, *, serving: int = 0, paid: int = 0) -> None:
        heapq.heappush(self._changes, (at_s, serving, paid))
        self.next_s = min(self.next_s, at_s)

    def _start(self, count: int, at_s: float) -> float:
        """Pays for instances from `at_s` on. Returns when all of them serve."""
        median, spread, ready = self._timing.provisioning_s, self._timing.provisioning_spread, at_s
        for _ in range(count):
            takes_s = self._random.lognormvariate(math.log(median), spread) if median and spread else median
            serves = at_s + takes_s + self._timing.model_load_s
            self._change(serves, serving=1)
            ready = max(ready, serves)
        self._change(at_s, paid=count)
        return ready


class EcsFleet(SimulatedFleet):
    """An ECS service with one task per instance and a capacity provider. It takes changes at any time."""

    def __init__(self, count: int, timing: Timing, random: Random) -> None:
        super().__init__(count, timing, random)
        self._warm_at_s = -math.inf
        self._idle: list[float] = []
        """When each idle instance goes, in order."""

    def add(self, count: int, now_s: float) -> float:
        self._idle = [goes_s for goes_s in self._idle if goes_s >= now_s]
        on_idle, done = min(count, len(self._idle)), now_s + self._timing.model_load_s
        for _ in range(on_idle):
            self._change(self._idle.pop(), paid=1)  # it stays
            self._change(done, serving=1)
        return self._start(count - on_idle, now_s) if count > on_idle else done

    def remove(self, count: int, now_s: float) -> float:
        self.serving -= count
        goes_s = now_s + self._timing.idle_s + MINUTE_S
        self._idle += [goes_s] * count
        self._change(goes_s, paid=-count)
        return now_s

    def _start(self, count: int, at_s: float) -> float:
        at_s = max(at_s + MINUTE_S, self._warm_at_s)
        self._warm_at_s = at_s + self._timing.instance_warm_up_s
        return super()._start(count, at_s)
