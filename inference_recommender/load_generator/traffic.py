"""When users come and go, and when requests arrive, in seconds since the start of the run. Pure.

Closed loop: a phase starts with its InitialNumberOfUsers and gains a user every 60 / SpawnRate seconds. A staircase has
k · UsersPerStep users during its k-th step. Open loop: a Poisson process of a constant rate from a seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.load_generator.plan import Arrivals, Phase, Stairs, TrafficPattern


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """From `at_s` on, `users` users are sending."""

    at_s: float
    users: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """The number of users over a whole run."""

    changes: tuple[Change, ...]
    boundaries_s: tuple[float, ...]
    """The beginning of each phase or step, and the end of the last."""

    @property
    def end_s(self) -> float:
        """Seconds until the traffic ends."""
        return self.boundaries_s[-1]

    def users_at(self, second: float) -> int:
        """Returns the number of users at `second`; 0 from the end on."""
        if second >= self.end_s:
            return 0
        return next((change.users for change in reversed(self.changes) if change.at_s <= second), 0)


def schedule(pattern: TrafficPattern, longest_s: float | None = None) -> Schedule:
    """Returns the schedule of `pattern`, cut at `longest_s` seconds."""
    if pattern.stairs is not None:
        changes, boundaries = _stairs(pattern.stairs)
    else:
        changes, boundaries = _phases(pattern.phases)
    end = min(boundaries[-1], longest_s or boundaries[-1])
    return Schedule(
        changes=tuple(change for change in changes if change.at_s < end),
        boundaries_s=(*(start for start in boundaries[:-1] if start < end), end),
    )


def arrival_times(arrivals: Arrivals, longest_s: float | None = None) -> Floats:
    """Returns the moments of arrival in seconds, ascending, from 0 to before `arrivals_end_s`."""
    per_second = arrivals.invocations_per_minute / 60
    end = arrivals_end_s(arrivals, longest_s)
    random = np.random.default_rng(arrivals.seed)
    times = np.zeros(0)
    while not len(times) or times[-1] < end:
        # Five standard deviations above the expected number: one draw is nearly always enough.
        expected = per_second * end
        gaps = random.exponential(1 / per_second, int(expected + 5 * np.sqrt(expected) + 16))
        times = np.concatenate([times, (times[-1] if len(times) else 0.0) + np.cumsum(gaps)])
    return times[times < end]


def arrivals_end_s(arrivals: Arrivals, longest_s: float | None = None) -> float:
    """Returns the duration of the arrivals in seconds, at most `longest_s`."""
    return min(arrivals.duration_in_seconds, longest_s or arrivals.duration_in_seconds)


def _phases(phases: tuple[Phase, ...]) -> tuple[list[Change], list[float]]:
    changes: list[Change] = []
    boundaries = [0.0]
    for phase in phases:
        start = boundaries[-1]
        changes += [Change(at_s=start + offset, users=users) for offset, users in _ramp(phase)]
        boundaries.append(start + phase.duration_in_seconds)
    return changes, boundaries


def _ramp(phase: Phase) -> Iterator[tuple[float, int]]:
    """Yields (seconds since the phase began, users) for each change within the phase."""
    yield 0.0, phase.initial_number_of_users
    spawned = 1
    while phase.spawn_rate and (offset := spawned * 60 / phase.spawn_rate) < phase.duration_in_seconds:
        yield offset, phase.initial_number_of_users + spawned
        spawned += 1


def _stairs(stairs: Stairs) -> tuple[list[Change], list[float]]:
    step_s = stairs.duration_in_seconds / stairs.number_of_steps
    starts = [step * step_s for step in range(stairs.number_of_steps)]
    changes = [Change(at_s=at, users=(step + 1) * stairs.users_per_step) for step, at in enumerate(starts)]
    return changes, [*starts, float(stairs.duration_in_seconds)]
