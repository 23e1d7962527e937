"""The request of an Inference Recommender job, built from a workload. Pure: nothing is sent, no clock is read."""

from dataclasses import dataclass
from typing import Any

from inference_recommender.traffic import stopping_conditions, traffic_pattern, warnings
from workloads import PhasedTraffic, StairTraffic, Workload

SETUP_ALLOWANCE_S = 1800
"""JobDurationInSeconds bounds the whole job, the endpoints' start included; the traffic alone must fit in the rest."""
LONGEST_JOB_S = 18_000

TASKS = {"text2text-generation": "TEXT_GENERATION"}
"""A workload's task in the service's words."""

# ContainerConfig has no Triton among its frameworks. PYTORCH is what AWS's own Triton example says; the value
# chooses no image, since the model brings its own.
FRAMEWORK = {"Framework": "PYTORCH", "FrameworkVersion": "2.13.0"}

JSON = "application/json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What the job tests and where its payloads lie."""

    model_name: str
    role_arn: str
    payload_url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan:
    request: dict[str, Any]
    """Of CreateInferenceRecommendationsJob."""
    traffic: PhasedTraffic | StairTraffic
    warnings: tuple[str, ...]

    @property
    def payload_url(self) -> str:
        """Where the job will look for its payloads."""
        return str(self.request["InputConfig"]["ContainerConfig"]["PayloadConfig"]["SamplePayloadUrl"])

    @property
    def job_name(self) -> str:
        return str(self.request["JobName"])


def plan_job(
    workload: Workload, traffic_name: str, traffic: PhasedTraffic | StairTraffic, subject: Subject, job_name: str
) -> JobPlan:
    """An advanced job over every candidate instance type of the workload."""
    tests = len(workload.instance_types)
    request = {
        "JobName": job_name,
        "JobType": "Advanced",
        "RoleArn": subject.role_arn,
        "JobDescription": f"{workload.description}: traffic {traffic_name}"[:128],
        "InputConfig": {
            "ModelName": subject.model_name,
            "JobDurationInSeconds": min(traffic.duration_s + SETUP_ALLOWANCE_S, LONGEST_JOB_S),
            "TrafficPattern": traffic_pattern(traffic),
            "ResourceLimit": {"MaxNumberOfTests": tests, "MaxParallelOfTests": tests},
            "EndpointConfigurations": [{"InstanceType": name} for name in workload.instance_types],
            "ContainerConfig": _container(workload, subject),
        },
        "StoppingConditions": stopping_conditions(traffic, workload.latency_objective),
        "Tags": [{"Key": "workload", "Value": workload.name}, {"Key": "traffic", "Value": traffic_name}],
    }
    return JobPlan(request=request, traffic=traffic, warnings=warnings(traffic_name, traffic))


def _container(workload: Workload, subject: Subject) -> dict[str, Any]:
    return {
        "Domain": "NATURAL_LANGUAGE_PROCESSING",
        "Task": TASKS[workload.model.task],
        **FRAMEWORK,
        "PayloadConfig": {"SamplePayloadUrl": subject.payload_url, "SupportedContentTypes": [JSON]},
        "SupportedInstanceTypes": list(workload.instance_types),
    }
