"""Writes a changed recommendation to its file and to its run's folder, and draws the report again."""

from pathlib import Path

from inference_recommender.report.run_report import draw
from inference_recommender.run_folder import RunFolder
from workloads import Recommendation


def rewrite(recommendation: Recommendation, file: Path, runs: Path) -> Path | None:
    """Writes a changed recommendation to `file`, and draws the report of its run again.

    Returns that report, or None if the run's folder is on another machine.
    """
    recommendation.write_json(file)
    run_folder = next((each for each in _folders(file, recommendation, runs) if _holds(each, recommendation)), None)
    if run_folder is None:
        return None
    run_folder.keep_recommendation(recommendation)
    draw(run_folder)
    return run_folder.report


def _folders(file: Path, recommendation: Recommendation, runs: Path) -> tuple[RunFolder, ...]:
    """Returns the places of the run: the folder of the file, as in a release, or a folder of its name in `runs`."""
    return RunFolder(file.parent), RunFolder(runs / Path(recommendation.provenance.run).name)


def _holds(run_folder: RunFolder, recommendation: Recommendation) -> bool:
    if not (run_folder.path / "measurements.json").exists():
        return False
    return run_folder.recommendation().provenance == recommendation.provenance
