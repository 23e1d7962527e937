"""The latency curve, and the steady state against queueing theory: M/M/1, M/M/4 and M/D/1 within 2 %."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from inference_recommender.simulate.curve import LatencyCurve, curve_of_candidate, curve_of_search
from inference_recommender.simulate.policy import FIRST_MONDAY, Policy, Timing, TrafficLoad
from inference_recommender.simulate.simulation import simulate
from tests.builders import a_candidate, a_probe, a_search, message_of
from workloads import LatencyObjective, UsageError

OBJECTIVE = LatencyObjective(percentile="P80", model_latency_ms=50.0, peak_invocations_per_minute=1000)
LIMIT_S = 0.05
SERVICE_S = 0.02
NEAR = 0.02
"""The part by which a steady state may be off."""


def late_mm(rate: float, servers: int) -> float:
    """Returns P(time in system > LIMIT_S) of M/M/c (Gross and Harris, Fundamentals of Queueing Theory, 2.3)."""
    mu = 1 / SERVICE_S
    offered = rate / mu
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    waits = last / (sum(terms) + last)
    spare = servers - 1 - offered
    if abs(spare) < 1e-9:
        return math.exp(-mu * LIMIT_S) * (1 + waits * mu * LIMIT_S)
    return math.exp(-mu * LIMIT_S) * (1 + waits * (1 - math.exp(-mu * LIMIT_S * spare)) / spare)


def late_md1(rate: float) -> float:
    """Returns the same of M/D/1: Erlang's distribution of the wait, beyond which each is served for SERVICE_S."""
    wait, rho = LIMIT_S - SERVICE_S, rate * SERVICE_S
    terms = (
        (rate * (k * SERVICE_S - wait)) ** k / math.factorial(k) * math.exp(-rate * (k * SERVICE_S - wait))
        for k in range(int(wait / SERVICE_S) + 1)
    )
    return 1 - (1 - rho) * sum(terms)


QUEUES: dict[str, tuple[Callable[[float], float], float]] = {
    "M/M/1": (lambda rate: late_mm(rate, 1), 50.0),
    "M/M/4": (lambda rate: late_mm(rate, 4), 200.0),
    "M/D/1": (late_md1, 50.0),
}
"""The late share by the rate, and the rate of a service that is never idle."""


def capacity_of(late: Callable[[float], float], most: float) -> float:
    """Returns the rate at which exactly the objective's share is late."""
    rates = np.linspace(0.01, most * 0.999, 200_001)
    return float(np.interp(0.2, [late(rate) for rate in rates[::100]], rates[::100]))


def searched(capacity: float, probes: list[tuple[float, float]]) -> LatencyCurve:
    """Returns the curve of a search with probes of a rate per second and a late share."""
    seen = [a_probe(rate * 60, None, late, 60.0) for rate, late in probes]
    return curve_of_search(a_search(capacity * 60, *seen, percentile="P80"), OBJECTIVE)


def steady_late_share(curve: LatencyCurve, rate: float, instances: int = 8) -> float:
    """Returns the late share of a day at a constant rate per instance."""
    load = TrafficLoad(start=FIRST_MONDAY, rates=np.full(1440, rate * instances))
    fixed = Policy(target_invocations_per_instance=1.0, min_capacity=instances, max_capacity=instances)
    return simulate(load, fixed, curve, Timing(), 0).outcome(0).late_share


@pytest.mark.parametrize("name", QUEUES)
def test_a_steady_state_is_that_of_queueing_theory(name: str) -> None:
    """The probes are the theory's own; a day of half a million requests and more is between them."""
    late, most = QUEUES[name]
    capacity = capacity_of(late, most)
    probes = [
        (share * capacity, late(share * capacity)) for share in np.linspace(0.1, 1.3, 13) if share * capacity < most
    ]
    curve = searched(capacity, probes)
    for share in (0.35, 0.65, 0.95):
        assert steady_late_share(curve, share * capacity) == pytest.approx(late(share * capacity), rel=NEAR)


def test_a_recommendation_alone_is_an_mm1_queue_of_its_capacity() -> None:
    """Its late share at the capacity is the allowed one."""
    objective = OBJECTIVE.model_copy(update={"percentile": "P99"})
    chosen = a_candidate(capacity=6000.0, max_invocations_interval=(5400.0, 6600.0))
    curve = curve_of_candidate(chosen, objective)
    mu = 100 + math.log(100) / 0.05
    shares = curve.late_share(np.array([0.0, 50.0, 100.0]))
    assert shares == pytest.approx([max(math.exp(-(mu - rate) * 0.05), 1e-6) for rate in (0, 50, 100)], rel=1e-6)
    assert shares[2] == pytest.approx(0.01)
    assert curve.spread == pytest.approx(math.log(6600 / 5400) / (2 * 1.96), rel=1e-4)
    assert curve.saturation == curve.measured_up_to == 100


def test_late_shares_of_probes_rise_and_pass_through_the_capacity() -> None:
    curve = searched(100.0, [(50.0, 0.02), (80.0, 0.01), (99.0, 0.5), (120.0, 0.3), (150.0, 0.9)])
    shares = curve.late_share(np.linspace(0, 150, 151))
    assert (np.diff(shares) >= 0).all()
    assert curve.late_share(np.array([99.0]))[0] <= 0.2
    assert curve.late_share(np.array([100.0]))[0] == pytest.approx(0.2)
    assert (curve.saturation, curve.measured_up_to) == (120.0, 150.0)


def test_a_service_that_bears_more_has_its_curve_stretched() -> None:
    curve = searched(100.0, [(50.0, 0.02), (120.0, 0.4)])
    twice = curve.stretched(2)
    assert twice.late_share(np.array([100.0, 200.0])) == pytest.approx(curve.late_share(np.array([50.0, 100.0])))
    assert (twice.capacity, twice.saturation, twice.measured_up_to) == (200.0, 240.0, 120.0)


def test_a_measurement_of_another_objective_is_refused() -> None:
    assert message_of(UsageError, curve_of_search, a_search(600.0, limit_ms=20.0), OBJECTIVE) == (
        "The measurement is of P99 ≤ 20 ms, and the objective is now P80 ≤ 50 ms. Measure again."
    )
