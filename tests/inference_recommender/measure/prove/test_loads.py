"""The loads of a proof."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_recommender.measure.prove.loads import loads
from inference_recommender.sizing.fleet import Demand, fleet
from tests.builders import OBJECTIVE, a_candidate
from workloads import Sizing


def test_each_instance_gets_its_share_of_the_peak_and_more_after_a_loss() -> None:
    peak, loss = loads(a_candidate(10), OBJECTIVE, Sizing())
    assert (peak.name, peak.instances_left, peak.per_instance, peak.required) == ("peak", 10, 1200.0, True)
    assert (loss.name, loss.instances_left, loss.required) == ("instance-lost", 9, False)
    assert loss.per_instance == pytest.approx(1333.3, abs=0.1)


@pytest.mark.parametrize(
    ("sizing", "name", "left"),
    [
        (Sizing(spare_instances=2), "instance-lost", 8),
        (Sizing(availability_zones=3), "zone-lost", 6),
        (Sizing(availability_zones=3, spare_instances=1), "zone-lost", 6),
        (Sizing(availability_zones=2, spare_instances=6), "instance-lost", 4),
    ],
)
def test_the_loss_follows_sizing(sizing: Sizing, name: str, left: int) -> None:
    _, loss = loads(a_candidate(10), OBJECTIVE, sizing)
    assert (loss.name, loss.instances_left, loss.required) == (name, left, True)


def test_a_fleet_of_one_has_no_instance_left() -> None:
    _, loss = loads(a_candidate(1), OBJECTIVE, Sizing())
    assert (loss.instances_left, loss.per_instance, loss.within_capacity) == (0, None, False)


@pytest.mark.parametrize(("capacity", "within"), [(1404.0, True), (1403.0, False)])
def test_a_load_is_within_capacity_up_to_the_lower_end_of_the_interval(capacity: float, within: bool) -> None:
    """12,000/min on 9 instances are 1,333.3 each, which is 95 % of 1,403.5."""
    assert loads(a_candidate(10, capacity), OBJECTIVE, Sizing())[1].within_capacity is within


def test_without_an_interval_the_capacity_itself_counts() -> None:
    assert loads(a_candidate(10, 1334.0, max_invocations_interval=None), OBJECTIVE, Sizing())[1].within_capacity


@settings(max_examples=40)
@given(
    capacity=st.floats(100, 1e5),
    spare=st.integers(0, 4),
    zones=st.none() | st.integers(2, 4),
    headroom=st.floats(0, 1),
)
def test_a_required_load_is_within_the_capacity_by_which_the_fleet_was_sized(
    capacity: float, spare: int, zones: int | None, headroom: float
) -> None:
    """Headroom included."""
    sizing = Sizing(spare_instances=spare, availability_zones=zones, headroom=headroom)
    count = fleet(capacity, Demand.of(OBJECTIVE), sizing).instance_count
    for load in loads(a_candidate(count, capacity), OBJECTIVE, sizing):
        if load.required and load.per_instance is not None:
            assert load.per_instance * (1 + headroom) <= capacity * (1 + 1e-9)
