"""A rate under a limit and one over it, and the rate to try between them. Pure.

Regula falsi with the Illinois rule (Dowell and Jarratt, BIT 11, 1971), kept off the ends of the bracket.
"""

from dataclasses import dataclass
from math import exp

KEPT_OFF = 0.15
"""Interpolation stays this share of the bracket off its ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bracket:
    """Two points of (log rate, log of latency over limit), the low one at or under the limit."""

    low: tuple[float, float]
    high: tuple[float, float]
    stayed: str = ""
    """The end that the last point left where it was."""

    def next_rate(self) -> float:
        (x1, y1), (x2, y2) = self.low, self.high
        share = -y1 / (y2 - y1) if y2 > y1 else 0.5
        return exp(x1 + (x2 - x1) * min(max(share, KEPT_OFF), 1 - KEPT_OFF))

    def with_point(self, point: tuple[float, float]) -> "Bracket":
        """The Illinois rule halves the height of an end that stays twice."""
        if point[1] <= 0:
            height = self.high[1] / 2 if self.stayed == "high" else self.high[1]
            return Bracket(low=point, high=(self.high[0], height), stayed="high")
        height = self.low[1] / 2 if self.stayed == "low" else self.low[1]
        return Bracket(low=(self.low[0], height), high=point, stayed="low")
