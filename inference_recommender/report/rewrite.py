"""Adds something to a recommendation, in its file and in its run's folder with the report there."""

from pathlib import Path

from inference_recommender.report.run_report import draw
from inference_recommender.run_folder import RunFolder
from workloads import Recommendation


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
