"""The rate at the limit from counts of late requests: right, as sure as it says, and no surer than the probes allow."""

from collections.abc import Sequence

import numpy as np
import pytest

from inference_recommender.capacity.probe import Probe
from inference_recommender.capacity.rate_at_limit import rate_at_limit
from tests.builders import a_probe

LIMIT = 0.05 / 60
"""50 ms in minutes; rates are per minute."""
RATES = (9_400.0, 9_700.0, 10_000.0, 10_300.0, 10_600.0)


def _counts(
    random: np.random.Generator, rates: Sequence[float], *, slope: float, noise: float = 0.0, bursts: int = 1
) -> list[Probe]:
    """Returns probes of a minute in thirty blocks, around 10,000 a minute at the limit, late in `bursts` together."""
    probes = []
    for rate in rates:
        share = 0.01 * (rate / 10_000) ** slope * np.exp(random.normal(-(noise**2) / 2, noise))
        late = bursts * random.poisson(rate / 30 * share / bursts, 30)
        probes.append(_probe(rate, [round(rate / 30)] * 30, late.tolist()))
    return probes


def _probe(rate: float, requests: Sequence[int], late: Sequence[int]) -> Probe:
    share = sum(late) / sum(requests)
    return a_probe(rate, None, share, 60.0, requests=tuple(requests), late=tuple(late))


@pytest.mark.parametrize(
    ("slope", "noise", "bursts"), [(20.0, 0.0, 1), (20.0, 0.0, 20), (20.0, 0.5, 5)], ids=["plain", "bursts", "noise"]
)
def test_the_interval_covers_for_nearly_all_of_twenty_seeds(slope: float, noise: float, bursts: int) -> None:
    random = np.random.default_rng(5)
    found = [
        rate_at_limit(_counts(random, RATES, slope=slope, noise=noise, bursts=bursts), 0.01, 0.95, limit=LIMIT)
        for _ in range(20)
    ]
    assert sum(each.low <= 10_000 <= each.high for each in found) > 16
    assert np.median([each.rate for each in found]) == pytest.approx(10_000, rel=0.02)


def test_noise_between_probes_widens_the_interval() -> None:
    random = np.random.default_rng(4)
    plain, noisy = (
        np.median(
            [
                rate_at_limit(_counts(random, RATES, slope=20, noise=noise), 0.01, 0.95, limit=LIMIT).half_width
                for _ in range(5)
            ]
        )
        for noise in (0.0, 0.8)
    )
    assert noisy > 1.5 * plain


def test_the_saturation_bounds_what_little_evidence_leaves_open() -> None:
    """A single short probe: the most that is answered is a tenth above it."""
    probe = _probe(40_000.0, [500, 500], [0, 0])
    found = rate_at_limit([probe], 0.01, 0.95, limit=LIMIT, saturation=44_000)
    assert 32_000 < found.low < found.rate < found.high < 46_000
    assert found.low < found.surely < found.rate


def test_without_late_requests_or_others_only_one_end_is_known() -> None:
    none, all_late = (
        rate_at_limit([_probe(10_000.0, [500] * 60, [late] * 60)], 0.01, 0.95, limit=LIMIT) for late in (0, 500)
    )
    assert 10_000 < none.low < 12_000
    assert (none.high, none.half_width) == (float("inf"), float("inf"))
    assert (all_late.low, all_late.high < 10_000) == (0, True)
