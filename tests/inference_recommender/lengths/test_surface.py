"""The model of latency by length: found where it is there, refused where nothing fits."""

from collections.abc import Callable

import numpy as np
import pytest

from inference_recommender.lengths.surface import FITS, Sample, _left_out, _weighted, fit, points, predictor, together

Latency = Callable[[float, float], float]
INPUTS, OUTPUTS = (5, 10, 20, 40, 64), (2, 8, 16, 32)


def samples(latency: Latency, outputs: tuple[int, ...] = OUTPUTS, noise: float = 0.02) -> list[Sample]:
    """Returns five requests of each pair of lengths, whose latency is off by some of its own."""
    chance = np.random.default_rng(7)
    return [
        Sample(input_tokens=n, output_tokens=m, latency_ms=latency(n, m) * (1 + noise * chance.standard_normal()))
        for n in INPUTS
        for m in outputs
        for _ in range(5)
    ]


def test_a_point_is_the_median_of_its_requests() -> None:
    seen = [Sample(input_tokens=5, output_tokens=2, latency_ms=each) for each in (1.0, 9.0, 2.0)]
    (point,) = points([*seen])
    assert (point.requests, point.p50_ms) == (3, 2.0)
    assert point.p99_ms == pytest.approx(8.86)
    assert point.noise is None
    (steady,) = points([Sample(input_tokens=5, output_tokens=2, latency_ms=each) for each in (2.0, 2.0, 4.0, 4.0)])
    assert steady.noise == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("latency", "formula", "values"),
    [
        (lambda n, m: 2 + 0.05 * n + 0.4 * m, "latency ≈ a + b·n + c·m", (2, 0.05, 0.4)),
        (lambda n, m: 2 + 0.05 * n + 0.1 * m + 0.02 * n * m, "latency ≈ a + b·n + c·m + d·n·m", (2, 0.05, 0.1, 0.02)),
    ],
)
def test_a_decoders_cost_is_found(latency: Latency, formula: str, values: tuple[float, ...]) -> None:
    measured = points(samples(latency))
    found = fit(measured)
    assert found is not None
    assert found.formula == formula
    assert found.residual < 0.03
    for coefficient, value in zip(found.coefficients, values, strict=True):
        low, high = coefficient.interval_ms
        assert low < value < high
    predict = predictor(found, measured)
    assert predict(np.array([30.0]), np.array([12.0]))[0] == pytest.approx(latency(30, 12), rel=0.02)


def test_an_encoders_attention_is_found_where_it_shows() -> None:
    straight = fit(points(samples(lambda n, m: 1 + 0.2 * n, outputs=(0,))))
    curved = fit(points(samples(lambda n, m: 1 + 0.02 * n + 0.01 * n * n, outputs=(0,))))
    assert straight is not None
    assert curved is not None
    assert (straight.formula, curved.formula) == ("latency ≈ a + b·n", "latency ≈ a + b·n + c·n²")


def test_answers_that_follow_their_requests_tell_not_what_each_costs() -> None:
    chance = np.random.default_rng(3)
    follow = [
        Sample(input_tokens=n, output_tokens=n - 1, latency_ms=3 + 0.5 * n + 0.1 * chance.standard_normal())
        for n in range(4, 60, 2)
    ]
    measured = points(follow)
    assert together(measured)
    assert not together(points(samples(lambda n, m: 1.0)))
    found = fit(measured)
    assert found is not None
    assert len(found.coefficients) == 2


def test_steps_have_no_model() -> None:
    """A graph of fixed lengths: requests are padded to the next of 8, 64."""
    assert fit(points(samples(lambda n, m: 1.0 if n <= 8 else 9.0, outputs=(0,), noise=0.0))) is None


def test_a_residual_that_the_machines_noise_explains_refuses_no_model() -> None:
    """Half of the requests met a busier machine: medians of the same lengths differ, whatever the model."""
    chance = np.random.default_rng(5)
    busy = [
        Sample(input_tokens=n, output_tokens=m, latency_ms=(2 + 0.05 * n + 0.4 * m) * factor)
        for n in INPUTS
        for m in OUTPUTS
        for half in (1.0, 1.0 + chance.exponential(0.45))
        for factor in [half] * 5
    ]
    measured = points(busy)
    found = fit(measured)
    assert found is not None
    assert found.residual > FITS
    assert found.noise > FITS / 2


def test_points_left_out_are_predicted_by_the_others() -> None:
    """The hat matrix gives what fitting again without each point gives."""
    measured, terms = points(samples(lambda n, m: 2 + 0.05 * n + 0.4 * m, noise=0.2)), ("1", "n", "m")
    design, wanted = _weighted(terms, measured)
    residuals = []
    for out in range(len(wanted)):
        kept = np.arange(len(wanted)) != out
        values = np.linalg.lstsq(design[kept], wanted[kept], rcond=None)[0]
        residuals.append(wanted[out] - design[out] @ values)
    assert _left_out(terms, measured) == pytest.approx(np.sqrt(np.mean(np.square(residuals))))
