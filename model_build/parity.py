"""Judges the original model against the workload's minimums, and the compiled model against the original. Pure.

`ParityComparison`s of all examples become a `ParityReport`, or `GateFailed` with the reasons and the worst examples.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from model_build.accuracy import Answered, ScoredAnswer, intervals, measure
from model_build.progress import Progress
from model_build.render import compared
from workloads import Example, GuidedReport, Parity, ParityReport, ProjectError
from workloads.workload import AGREEMENT

SHOWN_MISTAKES = 5


class GateFailed(ProjectError):
    """A model that is not good enough to ship."""

    exit_code = 1


class ParityFailed(GateFailed):
    """The original passes but the compiled model does not. Another precision may pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GuidedCheck:
    """A guided answer: its tokens, the passes that they took, and whether greedy decoding returns the same."""

    tokens: int
    passes: int
    same: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ParityComparison:
    """One example through both models. Differences are absolute, over all output numbers ("logits") compared."""

    example: Example
    original: ScoredAnswer
    compiled: ScoredAnswer
    identical: bool  # for a generated text, token by token
    max_logit_difference: float
    mean_logit_difference: float
    logits: int  # how many were compared
    guided: GuidedCheck | None = None

    @property
    def asked(self) -> str:
        return " | ".join(self.example.row.values())

    @property
    def off(self) -> float:
        """Distance of the original's score from the labelled one; 0 without scores."""
        wanted, given = self.example.score, self.original.score
        return 0.0 if wanted is None or given is None else abs(wanted - given)


Compare = Callable[[Path, Progress], Sequence[ParityComparison]]
"""Compares the compiled graphs in a folder with the loaded original."""


def report(metrics: Sequence[str], comparisons: Sequence[ParityComparison]) -> ParityReport:
    """Returns the figures of both models, with those of `metrics` that the examples can measure."""
    compared = sum(c.logits for c in comparisons)
    identical = fmean(c.identical for c in comparisons)
    original = [Answered(c.example, c.original) for c in comparisons]
    compiled = [Answered(c.example, c.compiled) for c in comparisons]
    return ParityReport(
        examples=len(comparisons),
        identical_answers=sum(c.identical for c in comparisons),
        max_logit_difference=float(np.max([c.max_logit_difference for c in comparisons])),
        mean_logit_difference=sum(c.mean_logit_difference * c.logits for c in comparisons) / compared,
        original=({AGREEMENT: 1.0} if AGREEMENT in metrics else {}) | measure(metrics, original),
        compiled=({AGREEMENT: identical} if AGREEMENT in metrics else {}) | measure(metrics, compiled),
        intervals=intervals(metrics, original),
        guided=_guided([c.guided for c in comparisons if c.guided]),
    )


def _guided(checks: Sequence[GuidedCheck]) -> GuidedReport | None:
    if not checks:
        return None
    tokens, passes = sum(check.tokens for check in checks), sum(check.passes for check in checks)
    return GuidedReport(tokens_per_pass=tokens / passes, differing_answers=sum(not check.same for check in checks))


def check_quality(parity: ParityReport, quality: Mapping[str, float], comparisons: Sequence[ParityComparison]) -> None:
    """Raises `GateFailed` if the original misses a minimum."""
    reasons = [
        f"{name} is {value:.4f}, at least {quality[f'min_{name}']} is required (quality.min_{name})."
        for name, value in parity.original.items()
        if f"min_{name}" in quality and not value >= quality[f"min_{name}"]  # NaN is not enough
    ]
    reasons += [
        f"{key.removeprefix('min_')} was not measured: build again, or leave out quality.{key} if no row can show it."
        for key in quality
        if key.removeprefix("min_") not in parity.original
    ]
    if reasons:
        worst = sorted((c for c in comparisons if c.original.text != c.example.wanted), key=lambda c: -c.off)
        wrong = [(c.asked, c.example.wanted, c.original.text) for c in worst]
        advice = "Train the checkpoint further, or lower the minimum in workload.toml."
        raise GateFailed(_sentences("The original model is not good enough on", reasons, wrong, advice))


def check_parity(
    parity: ParityReport,
    limits: Parity,
    comparisons: Sequence[ParityComparison],
    quality: Mapping[str, float] | None = None,
) -> None:
    """Raises `ParityFailed` if the compiled model differs too much. `quality` may have a minimum agreement."""
    reasons = differences(parity, limits)
    least, agreement = (quality or {}).get(f"min_{AGREEMENT}"), parity.compiled.get(AGREEMENT)
    if least is not None and agreement is not None and agreement < least:
        reasons.append(f"agreement is {agreement:.4f}, at least {least} is required (quality.min_{AGREEMENT}).")
    if reasons:
        worst = sorted(comparisons, key=lambda c: (c.identical, -c.max_logit_difference))
        different = [c for c in worst if not c.identical] or worst[:SHOWN_MISTAKES]
        advice = "Build again, or for a coarser precision allow more in the target's parity in workload.toml."
        shown = [(c.asked, c.original.text, c.compiled.text) for c in different]
        raise ParityFailed(_sentences("The compiled model differs from the original on", reasons, shown, advice))


def differences(parity: ParityReport, limits: Parity) -> list[str]:
    """Returns the differences that exceed the limits."""
    reasons = []
    different = parity.examples - parity.identical_answers
    if limits.max_metric_drop == 0 and different:
        reasons.append(f"{different} of {parity.examples} answers differ, none may (parity.max_metric_drop is 0).")
    for name, original in parity.original.items():
        drop = original - parity.compiled[name]
        if round(drop, 6) > limits.max_metric_drop:  # a correlation also moves with the last digits
            reasons.append(
                f"{name} drops by {drop:.4f}, at most {limits.max_metric_drop} is allowed (parity.max_metric_drop)."
            )
    if parity.guided and parity.guided.differing_answers:
        reasons.append(
            f"{parity.guided.differing_answers} guided answers differ from greedy decoding's, none may: set "
            'model.generation.guided = "off".'
        )
    what = compared(parity.original)
    if math.isnan(parity.max_logit_difference):
        reasons.append(f"some {what}s are not numbers (NaN).")
    for kind, key, allowed, measured in (
        ("largest", "max_logit_difference", limits.max_logit_difference, parity.max_logit_difference),
        ("mean", "max_mean_logit_difference", limits.max_mean_logit_difference, parity.mean_logit_difference),
    ):
        if allowed is not None and measured > allowed:
            reasons.append(
                f"the {kind} {what} difference is {measured:.3g}, at most {allowed:g} is allowed (parity.{key})."
            )
    return reasons


def _sentences(title: str, reasons: Sequence[str], mistakes: Sequence[tuple[str, str, str]], advice: str) -> str:
    """The reasons and the worst examples: each with its input, the expected answer and the model's answer."""
    shown = [f"  {text!r}: expected {expected!r}, got {got!r}" for text, expected, got in mistakes[:SHOWN_MISTAKES]]
    heading = [f"The {len(shown)} worst of {len(mistakes)} examples:"] if shown else []
    listed = (f"- {reason}" for reason in reasons)
    return "\n".join([f"{title} evaluation.jsonl:", *listed, *heading, *shown, advice])
