"""From an experiment's folder to its result and page, kept beside what was measured. No AWS."""

from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.page import page
from inference_recommender.experiment.result import Result, result


def conclude(kept: ExperimentFolder) -> Result:
    """Of the cells that are measured so far."""
    experiment, workload = kept.experiment(), kept.workload()
    found = result(experiment, workload, kept.measured(experiment.cells), kept.origin(), kept.job_arns())
    kept.keep_result(found)
    kept.keep_page(page(found, workload.description))
    return found
