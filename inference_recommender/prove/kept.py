"""Reads the recommendation that is to be proven, and adds the proof to it and to the report of its run."""

from pathlib import Path

from inference_recommender.report.page import draw
from inference_recommender.run_folder import RunFolder
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


def rewrite(recommendation: Recommendation, file: Path, runs: Path) -> Path | None:
    """Writes a recommendation to which something was added back to `file`, and draws the report of its run again.

    Returns that report, or None where the run's folder is on another machine.
    """
    recommendation.write_json(file)
    run_folder = next((each for each in _folders(file, recommendation, runs) if _holds(each, recommendation)), None)
    if run_folder is None:
        return None
    run_folder.keep_recommendation(recommendation)
    draw(run_folder)
    return run_folder.report


def _folders(file: Path, recommendation: Recommendation, runs: Path) -> tuple[RunFolder, ...]:
    """Returns where the run may be: its file beside it, as a release has it, or among the runs by its name."""
    return RunFolder(file.parent), RunFolder(runs / Path(recommendation.provenance.run).name)


def _holds(run_folder: RunFolder, recommendation: Recommendation) -> bool:
    if not (run_folder.path / "measurements.json").exists():
        return False
    return run_folder.recommendation().provenance == recommendation.provenance
