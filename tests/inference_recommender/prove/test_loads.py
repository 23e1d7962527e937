"""The rates under which a recommendation is proven."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_recommender.prove.loads import loads
from inference_recommender.sizing.fleet import Demand, fleet
from tests.inference_recommender.prove.recommended import OBJECTIVE, a_candidate
from workloads import Sizing


def test_each_instance_gets_its_share_of_the_peak_and_more_once_one_is_lost() -> None:
    peak, loss = loads(a_candidate(10), OBJECTIVE, Sizing())
    assert (peak.name, peak.instances_left, peak.per_instance, peak.asked) == ("peak", 10, 1200.0, True)
    assert (loss.name, loss.instances_left, loss.asked) == ("instance-lost", 9, False)
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
def test_what_sizing_asks_to_survive_is_lost(sizing: Sizing, name: str, left: int) -> None:
    _, loss = loads(a_candidate(10), OBJECTIVE, sizing)
    assert (loss.name, loss.instances_left, loss.asked) == (name, left, True)


def test_a_fleet_of_one_has_no_instance_left() -> None:
    _, loss = loads(a_candidate(1), OBJECTIVE, Sizing())
    assert (loss.instances_left, loss.per_instance, loss.claimed) == (0, None, False)


@pytest.mark.parametrize(("capacity", "claimed"), [(1404.0, True), (1403.0, False)])
def test_a_loss_is_claimed_to_be_borne_within_the_low_end_of_the_interval(capacity: float, claimed: bool) -> None:
    """9 of 10 instances bear 12,000 a minute at 1,333.3 each, which is 95 % of 1,403.5."""
    assert loads(a_candidate(10, capacity), OBJECTIVE, Sizing())[1].claimed is claimed


def test_without_an_interval_the_capacity_itself_is_claimed() -> None:
    assert loads(a_candidate(10, 1334.0, max_invocations_interval=None), OBJECTIVE, Sizing())[1].claimed


@settings(max_examples=40)
@given(
    capacity=st.floats(100, 1e5),
    spare=st.integers(0, 4),
    zones=st.none() | st.integers(2, 4),
    headroom=st.floats(0, 1),
)
def test_a_fleet_is_never_driven_beyond_what_it_was_sized_for(
    capacity: float, spare: int, zones: int | None, headroom: float
) -> None:
    """The rates that [sizing] asks for are within the capacity by which the fleet was sized, headroom included."""
    sizing = Sizing(spare_instances=spare, availability_zones=zones, headroom=headroom)
    count = fleet(capacity, Demand.of(OBJECTIVE), sizing).instance_count
    for load in loads(a_candidate(count, capacity), OBJECTIVE, sizing):
        if load.asked and load.per_instance is not None:
            assert load.per_instance * (1 + headroom) <= capacity * (1 + 1e-9)
