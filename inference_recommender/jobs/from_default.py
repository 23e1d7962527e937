"""The candidates of an advanced job, taken from a default job's run: what it measured, with the environment it chose.

Pure but for reading the run folder.
"""

from inference_recommender.errors import NoCandidates
from inference_recommender.jobs.configuration import Configuration
from inference_recommender.run_folder import RunFolder


def candidates_of(run: RunFolder, workload: str) -> tuple[Configuration, ...]:
    """Every configuration that the default run found a capacity for, best rate first. Raises `NoCandidates`."""
    if run.request()["JobType"] != "Default":
        raise NoCandidates(run.path, "is not the run of a default job.")
    if (other := run.workload().name) != workload:
        raise NoCandidates(run.path, f"measured {other}, not {workload}.")
    endpoint = run.jobs().deployed
    found = [
        one
        for one in run.measurements()
        if one.max_invocations_per_minute
        and not one.failure_reason
        and (not endpoint or one.endpoint_name != endpoint.name)
    ]
    if not found:
        raise NoCandidates(run.path, "found no capacity for any instance type.")
    found.sort(key=lambda one: -(one.max_invocations_per_minute or 0))
    chosen = [(one.instance_type, tuple(one.environment.items())) for one in found]
    return tuple(
        Configuration(instance_type=name, environment={key: (value,) for key, value in environment})
        for name, environment in dict.fromkeys(chosen)
    )
