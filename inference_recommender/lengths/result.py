"""Concludes from what was measured: the document of `lengths`, and its sentences. Pure.

In: samples of requests, alone and beside a load, and kinds of payloads. Out: `LengthSurface`, which is kept as
lengths.json, with the part that a recommendation gets in `lengths`.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from inference_recommender.lengths.shifts import Bounds, Kind, estimated
from inference_recommender.lengths.surface import (
    Fit,
    Point,
    Predict,
    Sample,
    by_input,
    fit,
    noise,
    points,
    predictor,
    together,
)
from inference_recommender.lengths.tokens import token_counts
from workloads import LatencyObjective, PayloadLengths, Sizing
from workloads.document import Document

NAME = "lengths.json"
NOISY = 0.05
"""From this noise of the medians on, a caution says so."""


class Check(Document):
    """The model beside requests that it was not fitted to: the payloads as they are."""

    requests: int
    measured_ms: float = Field(description="Mean of the payloads' latency alone, without the slowest 1 %.")
    predicted_ms: float

    @property
    def off(self) -> float:
        """Returns how much the prediction is above what was measured, as a share of that."""
        return self.predicted_ms / self.measured_ms - 1


class Origin(Document):
    """Which server was measured, where and when."""

    asked: str = Field(description="The target, the endpoint or the URL.")
    archive_sha256: str | None = Field(description="Of the archive that served; None where nothing tells.")
    measured_on: Literal["sagemaker", "local", "service"]
    machine: str = Field(description="The machine that asked.")
    measured_at: str
    run: str


class LengthSurface(Document):
    """The content of lengths.json; latencies are the caller's."""

    workload: str
    origin: Origin
    forced: bool = Field(description="Whether answers were made to have the lengths of the grid.")
    payloads: tuple[Sample, ...] = Field(description="The payloads as they are, each alone on the server.")
    points: tuple[Point, ...] = Field(
        description="The grid, each request alone on the server; by input length where answers were not forced."
    )
    load_invocations_per_minute: float = Field(description="Of payloads, beside which the next was measured.")
    points_under_load: tuple[Point, ...] = Field(description="By input length, answered as they come.")
    fit: Fit | None = Field(description="None: no model is near enough; see docs/lengths.md.")
    check: Check | None = Field(description="None without a model.")
    kinds: tuple[Kind, ...] = Field(description="The payloads, and those whose lengths shift, by closed-loop users.")
    lengths: PayloadLengths
    cautions: tuple[str, ...]


class Measured(Document):
    """All samples of a run, by what they are for."""

    payloads: tuple[Sample, ...]
    grid: tuple[Sample, ...]
    """Requests made to the grid's lengths, answered as they come."""
    forced: tuple[Sample, ...] = ()
    """The same with answers of the grid's lengths; empty where the server takes no length."""
    under_load: tuple[Sample, ...]
    load_invocations_per_minute: float
    kinds: tuple[Kind, ...]


def surface(
    workload: str,
    measured: Measured,
    origin: Origin,
    bounds: Bounds,
    *,
    objective: LatencyObjective,
    sizing: Sizing,
    invocations_per_minute: float | None,
) -> LengthSurface:
    """Fits the model and estimates the shifts. `invocations_per_minute` is what an instance bears of the payloads,
    where a recommendation tells.
    """
    fitted_to = points(measured.forced or (*measured.grid, *measured.payloads))
    found = fit(fitted_to)
    return LengthSurface(
        workload=workload,
        origin=origin,
        forced=bool(measured.forced),
        payloads=measured.payloads,
        points=fitted_to if measured.forced else by_input(measured.grid),
        load_invocations_per_minute=measured.load_invocations_per_minute,
        points_under_load=by_input(measured.under_load),
        fit=found,
        check=None if found is None else _check(predictor(found, fitted_to), measured.payloads),
        kinds=measured.kinds,
        lengths=PayloadLengths(
            payloads=len(measured.payloads),
            max_input_tokens=bounds.inputs,
            input_tokens=token_counts([each.input_tokens for each in measured.payloads]),
            output_tokens=token_counts([each.output_tokens for each in measured.payloads]) if bounds.outputs else None,
            shifts=estimated(measured.kinds, objective, sizing, invocations_per_minute),
            model=None if found is None else _model(found),
            machine=origin.machine,
            measured_at=origin.measured_at,
            run=origin.run,
        ),
        cautions=tuple(_cautions(measured, fitted_to, found, bounds)),
    )


def _check(predict: Predict, payloads: Sequence[Sample]) -> Check:
    latencies = np.array([each.latency_ms for each in payloads])
    inputs, outputs = (
        np.array([getattr(each, name) for each in payloads], np.float64) for name in ("input_tokens", "output_tokens")
    )
    kept = latencies <= np.percentile(latencies, 99)
    return Check(
        requests=int(kept.sum()),
        measured_ms=float(latencies[kept].mean()),
        predicted_ms=float(predict(inputs[kept], outputs[kept]).mean()),
    )


def _model(found: Fit) -> str:
    values = ", ".join(
        f"{letter} = {each.ms:.3g} ms ({each.interval_ms[0]:.3g} to {each.interval_ms[1]:.3g})"
        for letter, each in zip("abcd", found.coefficients, strict=False)
    )
    return (
        f"{found.formula[0].upper()}{found.formula[1:]} for n tokens in{_and_out(found)}: {values}; off by "
        f"{found.residual:.1%} on lengths left out, by {found.worst:.0%} at worst; the medians' own noise is "
        f"{found.noise:.1%}."
    )


def _and_out(found: Fit) -> str:
    return " and m out" if any("m" in each.term for each in found.coefficients) else ""


def _cautions(measured: Measured, fitted_to: Sequence[Point], found: Fit | None, bounds: Bounds) -> Iterator[str]:
    if found is None:
        yield "No model of latency by length is near enough: the surface is as measured."
    if (scatter := noise(fitted_to)) > NOISY:
        yield (
            f"Medians of the same lengths differ by {2 * scatter:.0%} between the first and the second half of their "
            "requests: the machine was not equally fast all the time. Rather trust figures of one that is."
        )
    if bounds.outputs and not measured.forced:
        yield "Answers had the lengths that the model gave them: this server takes no length to force."
    if together(fitted_to):
        yield "The answers' lengths follow the requests' so closely that what each costs by itself is not told."


def sentences(found: LengthSurface) -> Iterator[str]:
    """Yields what was found, a sentence each."""
    if found.lengths.model:
        yield found.lengths.model
    if found.check is not None:
        yield (
            f"The {found.check.requests} payloads themselves, which it was not fitted to, took "
            f"{found.check.measured_ms:.3g} ms on average alone; it predicts {found.check.predicted_ms:.3g} "
            f"({found.check.off:+.1%})."
            if found.forced
            else f"The payloads took {found.check.measured_ms:.3g} ms on average alone; it gives "
            f"{found.check.predicted_ms:.3g} ({found.check.off:+.1%})."
        )
    yield from found.cautions
