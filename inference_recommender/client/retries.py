"""When a failed request is sent again. Pure: a policy and one function."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """Waits double from `first_wait_s` up to `longest_wait_s`, each shortened at random by up to a half.

    Give `attempts=1` to a stateful model (a sequence batcher), for which a request counts each time it is sent.
    """

    attempts: int = 3
    first_wait_s: float = 0.05
    longest_wait_s: float = 2.0
    give_up_after_s: float = 10.0
    """No attempt begins later than this after the first."""

    def wait_s(self, failures: int, elapsed_s: float, chance: float) -> float | None:
        """Before the next attempt, after so many `failures`; None gives up. `chance` is random from 0 to 1."""
        wait = min(self.first_wait_s * 2 ** (failures - 1), self.longest_wait_s) * (1 - chance / 2)
        return None if failures >= self.attempts or elapsed_s + wait > self.give_up_after_s else wait
