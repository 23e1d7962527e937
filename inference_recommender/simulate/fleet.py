"""Instances that start, serve and go, as SageMaker and as ECS with a capacity provider have them. Pure.

Both count what serves and what is paid for. A request for instances says when all of them will serve.

SageMaker: an endpoint that adds or removes instances is Updating until it is done, and takes no other change meanwhile
(https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateEndpointWeightsAndCapacities.html); an instance is
paid for from its request until it is gone.

ECS: each task has an instance of its own. A task that fits on an idle instance starts at once; for others the capacity
provider's metric exceeds 100 %, and a minute later it starts instances, but none while one is younger than the warm-up.
A task that is removed leaves its instance idle, which goes after fifteen minutes
(https://docs.aws.amazon.com/AmazonECS/latest/developerguide/cluster-auto-scaling.html).
"""

import heapq
import math
from collections import deque
from random import Random

from inference_recommender.simulate.policy import MINUTE_S, Timing


class Fleet:
    """Counts what serves and what is paid for, and moves both on by the times at which they change."""

    def __init__(self, count: int, timing: Timing, random: Random) -> None:
        self.serving = count
        self.paid = count
        self.next_s = math.inf
        """When something changes next."""
        self._timing = timing
        self._random = random
        self._changes: list[tuple[float, int, int, int]] = []
        """Second, a number that orders changes of the same second, and what is added to serving and paid."""
        self._number = 0

    def advance(self, now_s: float) -> None:
        while self._changes and self._changes[0][0] <= now_s:
            _, _, serving, paid = heapq.heappop(self._changes)
            self.serving += serving
            self.paid += paid
        self.next_s = self._changes[0][0] if self._changes else math.inf

    def takes_changes(self, now_s: float) -> bool:
        """Tells whether instances can be added or removed now."""
        raise NotImplementedError

    def add(self, count: int, now_s: float) -> float:
        """Returns when all of them serve."""
        raise NotImplementedError

    def remove(self, count: int, now_s: float) -> float:
        """Takes instances out of service now. Returns when the removal is complete."""
        raise NotImplementedError

    def lose(self, count: int, now_s: float) -> None:
        """Lets instances fail, which are then replaced."""
        raise NotImplementedError

    def _change(self, at_s: float, *, serving: int = 0, paid: int = 0) -> None:
        self._number += 1
        heapq.heappush(self._changes, (at_s, self._number, serving, paid))
        self.next_s = min(self.next_s, at_s)

    def _provisioning_s(self) -> float:
        """Draws an instance's time from its request to its container's start."""
        median, spread = self._timing.provisioning_s, self._timing.provisioning_spread
        return self._random.lognormvariate(math.log(median), spread) if median and spread else median


class EndpointFleet(Fleet):
    """A production variant of a SageMaker endpoint."""

    _updating_until_s = -math.inf

    def takes_changes(self, now_s: float) -> bool:
        return now_s >= self._updating_until_s

    def add(self, count: int, now_s: float) -> float:
        self._updating_until_s = self._start(count, now_s)
        return self._updating_until_s

    def remove(self, count: int, now_s: float) -> float:
        self.serving -= count
        self._updating_until_s = now_s + self._timing.removal_s
        self._change(self._updating_until_s, paid=-count)
        return self._updating_until_s

    def lose(self, count: int, now_s: float) -> None:
        self.serving -= count
        self.paid -= count
        self._start(count, now_s + self._timing.replacement_s)

    def _start(self, count: int, at_s: float) -> float:
        ready = at_s
        for _ in range(count):
            serves = at_s + self._provisioning_s() + self._timing.model_load_s
            self._change(serves, serving=1)
            ready = max(ready, serves)
        self._change(at_s, paid=count)
        return ready


class EcsFleet(Fleet):
    """An ECS service with one task to an instance, and its capacity provider."""

    _warm_at_s = -math.inf

    def __init__(self, count: int, timing: Timing, random: Random) -> None:
        super().__init__(count, timing, random)
        self._idle = deque[float]()
        """When each idle instance goes, in order."""

    def advance(self, now_s: float) -> None:
        super().advance(now_s)
        while self._idle and self._idle[0] <= now_s:
            self._idle.popleft()
            self.paid -= 1
        if self._idle:
            self.next_s = min(self.next_s, self._idle[0])

    def takes_changes(self, now_s: float) -> bool:
        return True

    def add(self, count: int, now_s: float) -> float:
        on_idle = min(count, len(self._idle))
        done = now_s + self._timing.model_load_s
        for _ in range(on_idle):
            self._idle.pop()
            self._change(done, serving=1)
        return self._launch(count - on_idle, now_s) if count > on_idle else done

    def remove(self, count: int, now_s: float) -> float:
        self.serving -= count
        goes = now_s + self._timing.idle_s + MINUTE_S
        self._idle.extend([goes] * count)
        self.next_s = min(self.next_s, goes)
        return now_s

    def lose(self, count: int, now_s: float) -> None:
        self.serving -= count
        self.paid -= count
        self._launch(count, now_s + self._timing.replacement_s)

    def _launch(self, count: int, now_s: float) -> float:
        at = max(now_s + MINUTE_S, self._warm_at_s)
        self._warm_at_s = at + self._timing.instance_warm_up_s
        ready = at
        for _ in range(count):
            serves = at + self._provisioning_s() + self._timing.model_load_s
            self._change(serves, serving=1)
            ready = max(ready, serves)
        self._change(at, paid=count)
        return ready


def fleet(count: int, timing: Timing, random: Random) -> Fleet:
    """Returns a fleet of `count` instances that serve."""
    return EndpointFleet(count, timing, random) if timing.hosts == "sagemaker" else EcsFleet(count, timing, random)
