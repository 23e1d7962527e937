"""Reads the recommendation that is to be proven, and adds the proof to it and to the report of its run."""

from pathlib import Path

from inference_recommender.report.rewrite import rewrite
from workloads import Candidate, Proof, Recommendation, UsageError, WorkloadFolder

PROOF = "proof.json"


def recommendation_to_prove(folder: WorkloadFolder, file: Path) -> tuple[Recommendation, Candidate]:
    """Returns the recommendation and its fleet. Raises `UsageError` where there is none, or `InvalidDocument`."""
    workload = folder.workload
    if not file.exists():
        raise UsageError(
            f"{file} does not exist: there is no recommendation to prove. Measure one with `python -m "
            f"inference_recommender run {workload.name}`."
        )
    recommendation = Recommendation.from_json(file)
    if recommendation.workload != workload.name:
        raise UsageError(f"{file}: workload: is '{recommendation.workload}', and '{workload.name}' was to be proven.")
    chosen = recommendation.recommended
    if chosen is None or chosen.instance_count is None:
        raise UsageError(f"{file}: recommended: is null, so there is no fleet to prove. Measure another configuration.")
    return recommendation, chosen


def add_proof(recommendation: Recommendation, proof: Proof, file: Path, runs: Path) -> Path | None:
    """Writes the recommendation with its proof as `rewrite` does."""
    return rewrite(recommendation.model_copy(update={"proof": proof}), file, runs)
