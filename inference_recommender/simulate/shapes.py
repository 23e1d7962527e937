"""Shapes of traffic: a day or a week with the objective's peak and trough, drawn by a seed. Pure.

    diurnal         trough at four in the night, peak at four in the afternoon, every day
    weekly          the same with quieter Saturdays and Sundays
    flash-sale      half as busy days, and once a day a sale that begins within two minutes and halves every half hour
    steady-growth   days that grow from 40 % of the peak to the peak
    zone-lost       diurnal, and a zone fails for good within two hours of the first day's peak

Rates vary around the shape: their logarithm is an autoregressive process with a memory of half an hour. The mean
reaches the peak; the noise exceeds it.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from inference_recommender.capacity.statistics import Floats
from inference_recommender.simulate.policy import FIRST_MONDAY, TrafficLoad, ZoneLoss
from inference_recommender.simulate.tracking import DAY_MINUTES, MINUTE_S
from workloads import LatencyObjective, Sizing

ShapeName = Literal["diurnal", "weekly", "flash-sale", "steady-growth", "zone-lost"]
SHAPES: tuple[ShapeName, ...] = get_args(ShapeName)
DAYS: dict[ShapeName, int] = {"weekly": 7, "steady-growth": 7}
"""Default length in days; the other shapes have one day."""
PEAK_MINUTE, QUIETEST_HOUR = 16 * 60, 4
WEEKEND = (1.0, 1.0, 1.0, 1.0, 1.0, 0.7, 0.6)
"""Share of the peak, Monday to Sunday."""
NOISE, MEMORY_MINUTES = 0.04, 30.0
LEAST_TROUGH = 0.1
"""The trough as a share of the peak, if the objective has none."""
SALE_MINUTES, SALE_HALVES_MINUTES = 2, 30.0
ZONES = 2
"""Zones of a fleet, if [sizing] has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A shape's parameters; `load` draws it."""

    name: ShapeName
    peak_per_second: float
    trough_per_second: float
    days: int
    zones: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def load(self, seed: int) -> TrafficLoad:
        random = np.random.default_rng((seed, SHAPES.index(self.name)))
        minutes = np.arange(self.days * DAY_MINUTES)
        level: Floats = (1 - np.cos(2 * np.pi * (minutes / 60 % 24 - QUIETEST_HOUR) / 24)) / 2
        losses: tuple[ZoneLoss, ...] = ()
        match self.name:
            case "weekly":
                level = level * np.array(WEEKEND)[minutes // DAY_MINUTES % 7]
            case "steady-growth":
                level = level * np.linspace(0.4, 1.0, len(minutes))
            case "flash-sale":
                level = 0.5 * level + 0.5 * _sales(minutes, self.days, random)
            case "zone-lost":
                at = PEAK_MINUTE + float(random.uniform(-120, 120))
                losses = (ZoneLoss(at_s=at * MINUTE_S, zones=self.zones),)
        rates = self.trough_per_second + (self.peak_per_second - self.trough_per_second) * level
        return TrafficLoad(start=FIRST_MONDAY, rates=rates * _noise(random, len(rates)), losses=losses)


def shape(name: ShapeName, objective: LatencyObjective, sizing: Sizing, days: int | None = None) -> Shape:
    """Returns a shape with the objective's peak and trough."""
    peak = objective.peak_invocations_per_minute / 60
    return Shape(
        name=name,
        peak_per_second=peak,
        trough_per_second=objective.trough_invocations_per_minute / 60 or LEAST_TROUGH * peak,
        days=days or DAYS.get(name, 1),
        zones=sizing.availability_zones or ZONES,
    )


def _sales(minutes: NDArray[np.int64], days: int, random: np.random.Generator) -> Floats:
    """Returns each day's sale: up to 1 within two minutes, between 10:00 and 20:00, then halving."""
    begins = random.integers(10 * 60, 20 * 60, days)[minutes // DAY_MINUTES]
    since = minutes % DAY_MINUTES - begins
    rises = np.clip((since + 1) / SALE_MINUTES, 0, 1)
    sales: Floats = rises * 0.5 ** (np.maximum(since - SALE_MINUTES, 0) / SALE_HALVES_MINUTES)
    return sales


def _noise(random: np.random.Generator, count: int) -> Floats:
    """Returns autocorrelated factors with mean 1."""
    memory = np.exp(-1 / MEMORY_MINUTES)
    shocks = random.normal(0.0, NOISE * np.sqrt(1 - memory**2), count)
    shocks[0] = random.normal(0.0, NOISE)
    logs = np.empty(count)
    value = 0.0
    for place, shock in enumerate(shocks.tolist()):
        value = memory * value + shock
        logs[place] = value
    factors: Floats = np.exp(logs - NOISE**2 / 2)
    return factors
