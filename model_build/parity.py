"""Is the compiled model as good as the original, and the original as good as it must be? Pure.

In: one `Comparison` per example. Out: a `ParityReport`, or `GateFailed` with the reasons and the worst examples. It
does not know how either model was run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from model_build.errors import GateFailed, Mistake
from workloads import ParityReport, TaskMetrics
from workloads.workload import Parity, Quality


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One example through both models. Logit differences are absolute, over the original's own output tokens."""

    text: str
    label: str
    original: str
    compiled: str
    identical: bool  # token by token
    max_logit_difference: float
    mean_logit_difference: float
    logits: int  # how many were compared


def report(comparisons: Sequence[Comparison]) -> ParityReport:
    compared = sum(c.logits for c in comparisons)
    return ParityReport(
        examples=len(comparisons),
        identical_sequences=sum(c.identical for c in comparisons),
        max_logit_difference=_largest([c.max_logit_difference for c in comparisons]),
        mean_logit_difference=sum(c.mean_logit_difference * c.logits for c in comparisons) / compared,
        original=_metrics([(c.text, c.label, c.original) for c in comparisons]),
        compiled=_metrics([(c.text, c.label, c.compiled) for c in comparisons]),
    )


def check_quality(parity: ParityReport, quality: Quality, comparisons: Sequence[Comparison]) -> None:
    """The original must be worth compiling."""
    reasons = [
        f"{name} is {value:.4f}, at least {minimum} is required (quality.min_{name})."
        for name, value, minimum in (
            ("exact_match", parity.original.exact_match, quality.min_exact_match),
            ("left_alone", parity.original.left_alone, quality.min_left_alone),
        )
        if value < minimum
    ]
    if reasons:
        wrong = [Mistake(text=c.text, expected=c.label, got=c.original) for c in comparisons if c.original != c.label]
        raise GateFailed(
            "The original model is not good enough on evaluation.jsonl:",
            reasons,
            wrong,
            "Train the checkpoint further, or lower the minimum in workload.toml.",
        )


def check_parity(parity: ParityReport, limits: Parity, comparisons: Sequence[Comparison]) -> None:
    """The compiled model must answer as the original does."""
    if reasons := _differences(parity, limits):
        worst = sorted(comparisons, key=lambda c: (c.identical, -c.max_logit_difference))
        different = [c for c in worst if not c.identical] or worst[: GateFailed.SHOWN]
        raise GateFailed(
            "The compiled model differs from the original on evaluation.jsonl:",
            reasons,
            [Mistake(text=c.text, expected=c.original, got=c.compiled) for c in different],
            "Build again, or for a coarser precision allow more in the target's parity in workload.toml.",
        )


def _differences(parity: ParityReport, limits: Parity) -> list[str]:
    reasons = []
    different = parity.examples - parity.identical_sequences
    if limits.max_exact_match_drop == 0 and different:
        reasons.append(
            f"{different} of {parity.examples} token sequences differ, none may (parity.max_exact_match_drop is 0)."
        )
    drop = parity.original.exact_match - parity.compiled.exact_match
    if drop > limits.max_exact_match_drop:
        reasons.append(
            f"exact match drops by {drop:.4f}, at most {limits.max_exact_match_drop} is allowed "
            "(parity.max_exact_match_drop)."
        )
    allowed = limits.max_logit_difference
    if math.isnan(parity.max_logit_difference):
        reasons.append("some logits are not numbers (NaN).")
    if allowed is not None and parity.max_logit_difference > allowed:
        reasons.append(
            f"the largest logit difference is {parity.max_logit_difference:.3g}, at most {allowed:g} is allowed "
            "(parity.max_logit_difference)."
        )
    return reasons


def _largest(differences: Sequence[float]) -> float:
    """Of which NaN is the largest: `max` would let it slip through."""
    return math.nan if any(map(math.isnan, differences)) else max(differences)


def _metrics(answers: Sequence[tuple[str, str, str]]) -> TaskMetrics:
    """From (text, label, answer) of all pairs; a pair is already correct when its text is its label."""
    correct = [(text, answer) for text, label, answer in answers if text == label]
    return TaskMetrics(
        exact_match=sum(label == answer for _, label, answer in answers) / len(answers),
        left_alone=sum(text == answer for text, answer in correct) / len(correct),
    )
