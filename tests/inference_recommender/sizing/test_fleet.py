"""Instance counts against a simple computation in fractions."""

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.sizing.fleet import Demand, fleet
from workloads import Sizing

DEMAND = Demand(peak_invocations_per_minute=30_000, trough_invocations_per_minute=3_000)

PEAKS = st.integers(1, 10**7)
PERCENTS = st.integers(0, 200)
BURSTS = st.integers(100, 500)
SPARES = st.integers(0, 5)
ZONES = st.none() | st.integers(2, 6)


def _sizing(headroom: int, burst: int, spare: int, zones: int | None, safety: int = 50, least: int = 1) -> Sizing:
    return Sizing(
        headroom=headroom / 100,
        burst_factor=burst / 100,
        spare_instances=spare,
        availability_zones=zones,
        safety_factor=safety / 100,
        min_instances=least,
    )


def _counted(peak: int, rate: Fraction, headroom: int, burst: int, spare: int, zones: int | None, least: int) -> int:
    """Counts up from one, until the instances left after a failure sustain the load."""
    load = Fraction(peak * burst * (100 + headroom), 10_000)

    def sustains(count: int) -> bool:
        left = [count - spare] + ([count - -(-count // zones)] if zones else [])
        return all(count * rate >= load for count in left)

    count = max(math.ceil(load / rate), least)
    while not sustains(count):
        count += 1
    return count


def test_a_fleet_follows_the_formulas() -> None:
    sized = fleet(13_000, DEMAND, Sizing(headroom=0.2, safety_factor=0.5))
    assert sized.instance_count == math.ceil(36_000 / 13_000) == 3
    assert sized.autoscaling.target_invocations_per_instance == 6_500
    assert sized.autoscaling.max_capacity == math.ceil(36_000 / 6_500) == 6
    assert sized.autoscaling.min_capacity == math.ceil(3_600 / 6_500) == 1


def test_each_kind_of_headroom_has_its_part_of_the_count() -> None:
    # 30,000 a minute over 4,000 an instance; 1.5 × 30,000 = 45,000; and a quarter more is 56,250.
    sizing = Sizing(headroom=0.25, burst_factor=1.5, spare_instances=1, availability_zones=3, min_instances=24)
    sized = fleet(4_000, DEMAND, sizing)
    assert sized.parts == {
        "peak": 8,
        "burst_factor": 4,
        "headroom": 3,
        "spare_instances": 1,
        "availability_zones": 7,  # of 23 in three zones, one has 8: 15 are left
        "min_instances": 1,
    }
    assert sized.instance_count == 24


def test_an_exact_division_needs_no_extra_instance() -> None:
    assert fleet(36_000, DEMAND, Sizing(headroom=0.2)).instance_count == 1
    assert fleet(12_000, DEMAND, Sizing(headroom=0.2)).instance_count == 3
    assert fleet(11_999, DEMAND, Sizing(headroom=0.2)).instance_count == 4
    assert fleet(10_000 / 3, DEMAND, Sizing(headroom=0)).instance_count == 9, "a third is no float"


def test_the_target_of_a_tiny_rate_is_above_zero() -> None:
    assert fleet(5e-6, DEMAND, Sizing(safety_factor=0.5)).autoscaling.target_invocations_per_instance == 2.5e-6


def test_a_fleet_that_may_lose_a_zone_has_an_instance_left_at_any_hour() -> None:
    quiet = Demand(peak_invocations_per_minute=30_000, trough_invocations_per_minute=0)
    assert fleet(13_000, quiet, Sizing(availability_zones=3)).autoscaling.min_capacity == 2
    assert fleet(13_000, quiet, Sizing()).autoscaling.min_capacity == 1


@given(
    rate=st.integers(10**5, 10**7),
    peak=PEAKS,
    headroom=PERCENTS,
    burst=BURSTS,
    spare=SPARES,
    zones=ZONES,
    least=st.integers(1, 5),
)
def test_the_count_is_the_smallest_that_sustains_the_load_after_a_failure(
    rate: int, peak: int, headroom: int, burst: int, spare: int, zones: int | None, least: int
) -> None:
    sized = fleet(rate, Demand(peak_invocations_per_minute=peak), _sizing(headroom, burst, spare, zones, least=least))
    assert sized.instance_count == _counted(peak, Fraction(rate), headroom, burst, spare, zones, least)
    assert sum(sized.parts.values()) == sized.instance_count
    assert min(sized.parts.values()) >= 0
    assert sized.parts["peak"] == math.ceil(Fraction(peak, rate))


@given(
    rate=st.integers(1, 10**6),
    peak=PEAKS,
    trough_percent=st.integers(0, 100),
    headroom=PERCENTS,
    safety=st.integers(1, 100),
    least=st.integers(1, 5),
    zones=ZONES,
)
def test_scaling_reaches_the_load_that_the_fleet_is_sized_for(
    rate: int, peak: int, trough_percent: int, headroom: int, safety: int, least: int, zones: int | None
) -> None:
    trough = peak * trough_percent / 100
    demand = Demand(peak_invocations_per_minute=peak, trough_invocations_per_minute=trough)
    sized = fleet(rate, demand, _sizing(headroom, 100, 0, zones, safety, least))
    scaling = sized.autoscaling
    assert least <= scaling.min_capacity <= scaling.max_capacity
    assert sized.instance_count <= scaling.max_capacity
    needed = Fraction(peak * (100 + headroom), 100)
    assert scaling.max_capacity * Fraction(rate * safety, 100) >= needed
