"""The AWS adapter: stack outputs, SageMaker models, endpoints and jobs, their logs and metrics, and files in S3.

Each method is one call or a few, in the API's shapes. Every method raises `AwsUnavailable`.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from aws_api.errors import AwsRefused, AwsUnavailable, NotFound
from aws_api.expiry import expiry_of
from aws_api.logs import first_events, first_log, last_lines
from aws_api.s3 import S3Session
from aws_api.session import AwsSession, metric_query
from workloads import Interrupted, UsageError

MEASURED_ON_TAG = "local-aws:measured-on"
"""Key of the tag that holds the machine on which a local account measured a job."""
FINER_METRICS_TAG = "local-aws:finer-metrics"
"""Key of the tag of a job whose metrics have a datum each second, as with `python -m local_aws --pace quick`."""
INVOCATIONS_URL_TAG = "local-aws:invocations-url"
"""Key of the tag that holds the URL of the server behind an endpoint of a local account."""

JOB_LOG = "/aws/sagemaker/InferenceRecommendationsJobs"
ENDPOINT_LOG = "/aws/sagemaker/Endpoints/{endpoint}"
"""SageMaker documents two log groups for a test: the job's, with a stream for each endpoint, and the endpoint's, with
a stream for each instance, which outlives the endpoint."""
LOG_LINES = 8
HARDWARE_NAMESPACE = "/aws/sagemaker/Endpoints"
"""CloudWatch namespace of an instance's CPU, memory and GPU utilization, one point per minute."""
EXPIRING_KINDS = {"endpoint": "Endpoint", "endpoint-config": "EndpointConfig", "model": "Model"}
"""Kind → its noun in the API, in the order of deletion: endpoints cost money."""

DELETE_LIMIT_S = 3600
"""Longest wait until an endpoint can be deleted. Terraform's AWS provider waits as long for an endpoint to start
(hashicorp/terraform-provider-aws#39090)."""
DELETE_POLL_S = 5

Points = dict[str, dict[datetime, float]]
"""Metric values by query id and timestamp."""


class JobNameTaken(AwsUnavailable):
    """Another job has this name; a resumed run accepts the job if it carries the run's token."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is already a job called '{name}'. Choose another name with --name.")


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointDescription:
    """The responses of AWS about an endpoint."""

    endpoint: Mapping[str, Any]
    config: Mapping[str, Any]
    model: Mapping[str, Any]
    tags: Sequence[Mapping[str, str]]
    scalable_targets: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        return str(self.endpoint["EndpointName"])

    @property
    def archive_url(self) -> str:
        """The S3 URL of the model archive; empty if unknown."""
        return str(self.model.get("PrimaryContainer", {}).get("ModelDataUrl", ""))

    def tag(self, key: str) -> str | None:
        return next((tag["Value"] for tag in self.tags if tag["Key"] == key), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpiringResource:
    """A resource with an expiry tag."""

    kind: str
    name: str
    expires_at: datetime
    status: str | None = None
    """EndpointStatus of an endpoint."""


class SageMakerAccount(S3Session):
    def stack_outputs(self, stack: str, instead: str = "") -> dict[str, str]:
        """Returns the outputs of a stack. The error for a missing stack ends with `instead`."""
        try:
            described = self.call("cloudformation", "describe_stacks", StackName=stack)["Stacks"][0]
        except AwsRefused as error:
            raise _not_deployed(stack, f"There is no stack called {stack} in {self.region}.", instead) from error
        return {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])}

    def stack_output(self, stack: str, key: str, instead: str = "") -> str:
        outputs = self.stack_outputs(stack, instead)
        if key not in outputs:
            raise _not_deployed(stack, f"{stack} has no output {key}.", instead)
        return outputs[key]

    def endpoint_name(self, stack: str) -> str:
        """Returns the name of the stack's endpoint."""
        return self.stack_output(stack, "EndpointName", ", or name an endpoint with --endpoint NAME")

    def hosted_target(self, stack: str, endpoint: str | None = None) -> str | None:
        """Returns the target that the stack hosts. Returns None if it is unknown, or the stack has another endpoint."""
        try:
            outputs = self.stack_outputs(stack)
        except AwsUnavailable:
            return None
        return outputs.get("HostedTarget") if endpoint in (None, outputs.get("EndpointName")) else None

    def create_processing_job(self, request: Mapping[str, Any]) -> None:
        self._call("create_processing_job", **request)

    def describe_processing_job(self, name: str) -> Mapping[str, Any]:
        return self._call("describe_processing_job", ProcessingJobName=name)

    def stop_processing_job(self, name: str) -> None:
        self._call("stop_processing_job", ProcessingJobName=name)

    def create_job(self, request: Mapping[str, Any]) -> str:
        """Creates an Inference Recommender job and returns its ARN. Raises `JobNameTaken`."""
        try:
            return str(self._call("create_inference_recommendations_job", **request)["JobArn"])
        except AwsRefused as error:
            if error.code == "ResourceInUse":
                raise JobNameTaken(request["JobName"]) from error
            raise

    def describe_job(self, name: str) -> dict[str, Any]:
        """Raises `NotFound`."""
        return self._call("describe_inference_recommendations_job", JobName=name)

    def existing_job(self, name: str) -> dict[str, Any]:
        """Describes a job that a user named. Raises `UsageError` if there is none."""
        try:
            return self.describe_job(name)
        except NotFound as error:
            raise UsageError(
                f"There is no Inference Recommender job called '{name}' in {self.region}. "
                "List jobs with `python -m inference_recommender jobs list`."
            ) from error

    def list_jobs(self, name_contains: str | None, limit: int) -> list[dict[str, Any]]:
        """Returns the latest jobs, newest first."""
        options: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending"}
        if name_contains:
            options["NameContains"] = name_contains
        operation = "list_inference_recommendations_jobs"
        return self._pages(operation, "InferenceRecommendationsJobs", PaginationConfig={"MaxItems": limit}, **options)

    def job_steps(self, name: str) -> list[dict[str, Any]]:
        return self._pages("list_inference_recommendations_job_steps", "Steps", JobName=name)

    def stop_job(self, name: str) -> None:
        self._call("stop_inference_recommendations_job", JobName=name)

    def tags(self, arn: str) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in self._pages("list_tags", "Tags", ResourceArn=arn)}

    def scaling_configuration(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("get_scaling_configuration_recommendation", **request)

    def container_log(self, job_name: str, endpoint_name: str) -> list[str]:
        """Returns the last lines of a test's container; none if there is no log or it may not be read."""
        return [*first_log(self, container_logs(job_name, endpoint_name), LOG_LINES).lines]

    def metrics(self, queries: Iterable[Mapping[str, Any]], start: datetime, end: datetime) -> Points:
        """Returns the results of MetricDataQueries. The window is a minute wider on both sides, because a point's time
        is the beginning of its period.
        """
        minute = timedelta(seconds=60)
        window = {"StartTime": start - minute, "EndTime": end + minute}
        points: Points = {}
        operation, key = "get_metric_data", "MetricDataResults"
        for result in self.pages("cloudwatch", operation, key, MetricDataQueries=list(queries), **window):
            points.setdefault(result["Id"], {}).update(zip(result["Timestamps"], result["Values"], strict=True))
        return points

    def gpu_utilization(self, endpoint: str, variant: str, start: datetime, end: datetime) -> float | None:
        """Returns the mean utilization of the busiest minute, 0 to 100 × GPUs; None without a metric."""
        of_variant = {"EndpointName": endpoint, "VariantName": variant}
        query = metric_query("gpu", HARDWARE_NAMESPACE, "GPUUtilization", of_variant, "Average")
        return max(self.metrics([query], start, end).get("gpu", {}).values(), default=None)

    def model(self, name: str) -> dict[str, Any]:
        return self._call("describe_model", ModelName=name)

    def make_model(self, request: Mapping[str, Any]) -> None:
        """Creates a model, or reuses an existing one with that name and archive."""
        name = request["ModelName"]
        if self._created("create_model", request):
            return
        existing = self.model(name)
        if existing["PrimaryContainer"].get("ModelDataUrl") != request["PrimaryContainer"]["ModelDataUrl"]:
            raise AwsUnavailable(f"There is already a SageMaker model called '{name}' with another archive.")
        self._tag(existing["ModelArn"], request)

    def delete_model(self, name: str) -> None:
        with suppress(NotFound):
            self._call("delete_model", ModelName=name)

    def register(self, group_request: Mapping[str, Any], package_request: Mapping[str, Any]) -> str:
        """Creates a model package, and its group if it does not exist. Returns the package's ARN."""
        name = group_request["ModelPackageGroupName"]
        groups = self._pages("list_model_package_groups", "ModelPackageGroupSummaryList", NameContains=name)
        if name not in (group["ModelPackageGroupName"] for group in groups):
            self._call("create_model_package_group", **group_request)
        return str(self._call("create_model_package", **package_request)["ModelPackageArn"])

    def describe_endpoint(self, name: str) -> dict[str, Any]:
        return self._call("describe_endpoint", EndpointName=name)

    def endpoint_description(self, name: str) -> EndpointDescription:
        """Returns an endpoint with its configuration, model, tags and autoscaling."""
        endpoint = self.describe_endpoint(name)
        config = self._call("describe_endpoint_config", EndpointConfigName=endpoint["EndpointConfigName"])
        models = [variant["ModelName"] for variant in config["ProductionVariants"] if "ModelName" in variant]
        ids = [scaling_resource_id(name, variant["VariantName"]) for variant in config["ProductionVariants"]]
        scaling = self.call(
            "application-autoscaling", "describe_scalable_targets", ServiceNamespace="sagemaker", ResourceIds=ids
        )
        return EndpointDescription(
            endpoint=endpoint,
            config=config,
            model=self.model(models[0]) if models else {},
            tags=self._pages("list_tags", "Tags", ResourceArn=endpoint["EndpointArn"]),
            scalable_targets=scaling["ScalableTargets"],
        )

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        """Creates an endpoint and its configuration, or reuses existing ones with these names."""
        if not self._created("create_endpoint_config", config):
            existing = self._call("describe_endpoint_config", EndpointConfigName=config["EndpointConfigName"])
            self._tag(existing["EndpointConfigArn"], config)
        if not self._created("create_endpoint", endpoint):
            self._tag(self.describe_endpoint(endpoint["EndpointName"])["EndpointArn"], endpoint)

    def _created(self, operation: str, request: Mapping[str, Any]) -> bool:
        """Returns False if the name exists already; the service has no error code for that."""
        try:
            self._call(operation, **request)
        except AwsRefused as error:
            if "already existing" not in error.reason:
                raise
            return False
        return True

    def log_end(self, group: str, lines: int, prefix: str | None = None) -> Sequence[str]:
        """Returns the last lines of the latest stream of a log group, or of the streams whose names begin so."""
        return last_lines(self, group, lines, prefix=prefix)

    def endpoint_log(self, name: str) -> list[list[tuple[float, str]]]:
        """Returns the beginning of each instance's log as Unix seconds and lines; none if there is no log."""
        return first_events(self, ENDPOINT_LOG.format(endpoint=name))

    def delete_endpoint(
        self, name: str, progress: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Deletes an endpoint and its configuration of the same name, if they exist. See `delete_endpoint`."""
        delete_endpoint(self, name, progress, sleep)
        with suppress(NotFound):
            self._call("delete_endpoint_config", EndpointConfigName=name)

    def expiring_resources(self) -> list[ExpiringResource]:
        """Returns all resources with an expiry tag, in the order of deletion. The API cannot filter by tag, so the tags
        of each endpoint, configuration and model are listed.
        """
        found = []
        for kind, noun in EXPIRING_KINDS.items():
            for item in self._pages(f"list_{kind.replace('-', '_')}s", f"{noun}s"):
                if (expires_at := self._expiry(item[f"{noun}Arn"])) is not None:
                    name, status = item[f"{noun}Name"], item.get("EndpointStatus")
                    found.append(ExpiringResource(kind=kind, name=name, expires_at=expires_at, status=status))
        return found

    def delete_resource(self, resource: ExpiringResource) -> None:
        """Raises `NotFound` if it no longer exists, and `AwsRefused` if it cannot be deleted now."""
        operation = f"delete_{resource.kind.replace('-', '_')}"
        self._call(operation, **{f"{EXPIRING_KINDS[resource.kind]}Name": resource.name})

    def _expiry(self, arn: str) -> datetime | None:
        try:
            return expiry_of(self._pages("list_tags", "Tags", ResourceArn=arn))
        except NotFound:  # deleted since it was listed
            return None

    def _tag(self, arn: str, request: Mapping[str, Any]) -> None:
        """Gives an existing resource the expiry of a new request for it."""
        self._call("add_tags", ResourceArn=arn, Tags=request["Tags"])

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        return self.call("sagemaker", operation, **arguments)

    def _pages(self, operation: str, key: str, **arguments: Any) -> list[dict[str, Any]]:
        return self.pages("sagemaker", operation, key, **arguments)


def container_logs(job_name: str, endpoint_name: str) -> list[tuple[str, str | None]]:
    """Returns the log groups of a job's test, each with the prefix of its streams."""
    return [(ENDPOINT_LOG.format(endpoint=endpoint_name), None), (JOB_LOG, f"{job_name}/Endpoint/{endpoint_name}")]


def delete_endpoint(
    session: AwsSession, name: str, progress: Callable[[str], None], sleep: Callable[[float], None]
) -> None:
    """Deletes an endpoint if it exists, after its start or update: SageMaker refuses to delete it before.

    Raises `AwsUnavailable` after `DELETE_LIMIT_S`, and `Interrupted` on Ctrl-C.
    """
    left = (
        f"The endpoint {name} may still exist and costs by the hour. Delete it: "
        f"aws sagemaker delete-endpoint --endpoint-name {name}"
    )
    try:
        for waited_s in range(0, DELETE_LIMIT_S + 1, DELETE_POLL_S):
            try:
                session.call("sagemaker", "delete_endpoint", EndpointName=name)
                return
            except NotFound:
                return
            except AwsRefused as error:  # the service has no error code for this
                if "in-progress" not in error.reason or waited_s == DELETE_LIMIT_S:
                    raise
            if waited_s % 60 == 0:
                limit = DELETE_LIMIT_S // 60
                progress(f"Endpoint {name} starts or updates. Waiting to delete it: {waited_s // 60} of {limit} min")
            sleep(DELETE_POLL_S)
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted: the endpoint was not deleted.\n{left}") from None
    except AwsUnavailable as error:
        raise AwsUnavailable(f"{error}\n{left}") from error


def scaling_resource_id(endpoint: str, variant: str) -> str:
    """Returns Application Auto Scaling's id of a variant."""
    return f"endpoint/{endpoint}/variant/{variant}"


def _not_deployed(stack: str, missing: str, instead: str) -> AwsUnavailable:
    return AwsUnavailable(f"{missing} Run `cdk deploy {stack}` first{instead}.")
