"""How many users a traffic pattern asks for at each moment. Pure: seconds since the start, no clock.

A phase starts with exactly its InitialNumberOfUsers, whatever the phase before it had reached, and gains one user
every 60 / SpawnRate seconds. A staircase holds k · UsersPerStep users during its k-th step of equal length.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from inference_recommender.load_generator.plan import Phase, Stairs, TrafficPattern


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """From `at_s` on, `users` users are sending."""

    at_s: float
    users: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    changes: tuple[Change, ...]
    boundaries_s: tuple[float, ...]
    """Where each phase or step begins, and the end of the last."""

    @property
    def end_s(self) -> float:
        return self.boundaries_s[-1]

    def users_at(self, second: float) -> int:
        """Users at `second`; 0 from the end on."""
        if second >= self.end_s:
            return 0
        return next((change.users for change in reversed(self.changes) if change.at_s <= second), 0)


def schedule(pattern: TrafficPattern, longest_s: float | None = None) -> Schedule:
    """The schedule of `pattern`, cut at `longest_s`."""
    if pattern.stairs is not None:
        changes, boundaries = _stairs(pattern.stairs)
    else:
        changes, boundaries = _phases(pattern.phases)
    end = min(boundaries[-1], longest_s or boundaries[-1])
    return Schedule(
        changes=tuple(change for change in changes if change.at_s < end),
        boundaries_s=(*(start for start in boundaries[:-1] if start < end), end),
    )


def _phases(phases: tuple[Phase, ...]) -> tuple[list[Change], list[float]]:
    changes: list[Change] = []
    boundaries = [0.0]
    for phase in phases:
        start = boundaries[-1]
        changes += [Change(at_s=start + offset, users=users) for offset, users in _ramp(phase)]
        boundaries.append(start + phase.duration_in_seconds)
    return changes, boundaries


def _ramp(phase: Phase) -> Iterator[tuple[float, int]]:
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
