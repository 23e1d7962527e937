"""The adapter of `Service` and of the CLI's other calls: boto3's clients, and a sentence for every refusal.

An account on this machine is reached through the same calls (AWS_ENDPOINT_URL).

CloudWatch has the time series of a test. Inference Recommender publishes its client's view (ClientInvocations,
ClientLatency in ms, NumberOfUsers) by job and endpoint; SageMaker publishes the endpoint's (ModelLatency in µs).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from aws_api.errors import AwsRefused, AwsUnavailable, NotFound, translate_aws_errors
from aws_api.logs import last_lines
from aws_api.s3 import upload
from aws_api.session import AwsSession
from inference_recommender.capacity.time_series import Series
from inference_recommender.measure.job_wait import JobNameTaken
from inference_recommender.measurement import DeployedEndpoint, results
from workloads import WorkloadFolder, load_workload

MEASURED_ON_TAG = "local-aws:measured-on"
"""Key of the tag that holds the machine on which an account that is not AWS measured a job."""
INVOCATIONS_URL_TAG = "local-aws:invocations-url"
"""Key of the tag that holds the address of the server behind an endpoint of such an account."""

JOB_LOG = "/aws/sagemaker/InferenceRecommendationsJobs"
ENDPOINT_LOG = "/aws/sagemaker/Endpoints/{endpoint}"
"""SageMaker documents two places of a test's log: the job's, with a stream for each of its endpoints, and the
endpoint's, with a stream for each instance, which outlives the endpoint."""
LOG_LINES = 8
DENIED = frozenset({"AccessDeniedException", "AccessDenied"})
"""A log that the user may not read: the reason of a failure has to do without it."""

LATEST = timedelta(seconds=30)
"""The span before now that the live view of a test shows."""


JOB_NAMESPACE = "/aws/sagemaker/InferenceRecommendationsJobs"
ENDPOINT_NAMESPACE = "AWS/SageMaker"
LATENCIES = ("p50", "p90", "p95", "p99")
MODEL_LATENCY = "model"
"""Id of the query for the model latency of each period."""
QUANTILES = ("p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9")
DAY_S = 86_400
FINER_STEPS = {1: 60, 5: 900}
"""Period in s, and the longest test in s for which that period is asked. SageMaker publishes every 60 s; an account on
this machine publishes finer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StackOutputs:
    endpoint_name: str
    model_name: str
    role_arn: str


class Aws(AwsSession):
    def stack_outputs(self, stack: str) -> StackOutputs:
        """Raises `AwsUnavailable` where the stack or one of its outputs is missing."""
        instead = ", or name a model and a role with --model-name and --role-arn"
        outputs = self._outputs(stack, instead)
        try:
            return StackOutputs(
                endpoint_name=outputs["EndpointName"],
                model_name=outputs["ModelName"],
                role_arn=outputs["RecommenderRoleArn"],
            )
        except KeyError as error:
            raise _not_deployed(stack, f"{stack} has no output {error.args[0]}.", instead) from error

    def endpoint_name(self, stack: str, options: str = "--endpoint NAME or --url URL") -> str:
        """Returns the name of the stack's endpoint. Raises `AwsUnavailable`, which names `options`, if it has none."""
        outputs = self._outputs(stack, f", or name an endpoint with {options}")
        if "EndpointName" not in outputs:
            raise AwsUnavailable(f"{stack} has no SageMaker endpoint. Name one with {options}.")
        return outputs["EndpointName"]

    def hosted_target(self, stack: str, endpoint: str | None = None) -> str | None:
        """Returns the target that the stack hosts, or None if no stack tells, or the stack has another endpoint."""
        try:
            outputs = self._outputs(stack)
        except AwsUnavailable:
            return None
        return outputs.get("HostedTarget") if endpoint in (None, outputs.get("EndpointName")) else None

    def generator_role(self, stack: str) -> str:
        """Returns the role that the stack has for generators. Raises `AwsUnavailable` where it has none."""
        instead = (
            f"Run `cdk deploy {stack}`, or name a role with --role-arn that sagemaker.amazonaws.com may assume, and "
            "that may read and write the bucket, pull the image, write logs and invoke the endpoint."
        )
        outputs = self._outputs(stack)
        if "GeneratorRoleArn" not in outputs:
            raise AwsUnavailable(f"{stack} has no output GeneratorRoleArn. {instead}")
        return outputs["GeneratorRoleArn"]

    def _outputs(self, stack: str, instead: str = "") -> dict[str, str]:
        try:
            with translate_aws_errors("DescribeStacks"):
                described = self.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
        except AwsRefused as error:
            raise _not_deployed(stack, f"There is no stack called {stack} in {self.region}.", instead) from error
        return {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])}

    def upload(self, url: str, body: bytes) -> None:
        """Puts `body` at an s3:// URL and makes the bucket where it is missing."""
        upload(self, url, body)

    def acts_as_a_role(self) -> bool:
        """Tells whether the credentials are a role's, which may do what its work needs, rather than a user's own."""
        with translate_aws_errors("GetCallerIdentity"):
            return ":assumed-role/" in self.client("sts").get_caller_identity()["Arn"]

    def deployed_endpoint(self, name: str) -> DeployedEndpoint:
        """Returns an existing endpoint for a job. Raises `AwsUnavailable` where a job cannot test it."""
        with translate_aws_errors("DescribeEndpoint"):
            endpoint = self._sagemaker.describe_endpoint(EndpointName=name)
            config = self._sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
        with translate_aws_errors("DescribeScalableTargets"):
            ids = [resource_id(name, variant["VariantName"]) for variant in config["ProductionVariants"]]
            targets = self.client("application-autoscaling").describe_scalable_targets(
                ServiceNamespace="sagemaker", ResourceIds=ids
            )["ScalableTargets"]
        return deployed_endpoint(endpoint, config, targets)

    def model(self, name: str) -> dict[str, Any]:
        with translate_aws_errors("DescribeModel"):
            return _without_metadata(self._sagemaker.describe_model(ModelName=name))

    def register(self, group_request: Mapping[str, Any], package_request: Mapping[str, Any]) -> str:
        """Makes a version in the model registry, and its group where that is missing. Returns the version's ARN."""
        name = group_request["ModelPackageGroupName"]
        with translate_aws_errors("ListModelPackageGroups"):
            pages = self._sagemaker.get_paginator("list_model_package_groups").paginate(NameContains=name)
            groups = {
                group["ModelPackageGroupName"] for page in pages for group in page["ModelPackageGroupSummaryList"]
            }
        if name not in groups:
            with translate_aws_errors("CreateModelPackageGroup"):
                self._sagemaker.create_model_package_group(**group_request)
        with translate_aws_errors("CreateModelPackage"):
            return str(self._sagemaker.create_model_package(**package_request)["ModelPackageArn"])

    def create_job(self, request: Mapping[str, Any]) -> str:
        """Returns the new job's ARN. Raises `JobNameTaken`."""
        try:
            with translate_aws_errors("CreateInferenceRecommendationsJob"):
                return str(self._sagemaker.create_inference_recommendations_job(**request)["JobArn"])
        except AwsRefused as error:
            if error.code == "ResourceInUse":
                raise JobNameTaken(request["JobName"]) from error
            raise

    def describe_job(self, name: str) -> dict[str, Any]:
        """Raises `NotFound`."""
        with translate_aws_errors("DescribeInferenceRecommendationsJob"):
            return _without_metadata(self._sagemaker.describe_inference_recommendations_job(JobName=name))

    def existing_job(self, name: str) -> dict[str, Any]:
        """Returns `describe_job` of a name from the command line. Raises `AwsUnavailable` where there is none."""
        try:
            return self.describe_job(name)
        except NotFound as error:
            raise AwsUnavailable(
                f"There is no Inference Recommender job called '{name}' in {self.region}. "
                "`python -m inference_recommender list` shows those there are."
            ) from error

    def jobs(self, name_contains: str | None, most: int) -> list[dict[str, Any]]:
        """Returns the latest `most` jobs, newest first, in the shape of ListInferenceRecommendationsJobs."""
        chosen = {"NameContains": name_contains} if name_contains else {}
        with translate_aws_errors("ListInferenceRecommendationsJobs"):
            pages = self._sagemaker.get_paginator("list_inference_recommendations_jobs").paginate(
                SortBy="CreationTime", SortOrder="Descending", PaginationConfig={"MaxItems": most}, **chosen
            )
            return [job for page in pages for job in page["InferenceRecommendationsJobs"]]

    def job_steps(self, name: str) -> list[dict[str, Any]]:
        with translate_aws_errors("ListInferenceRecommendationsJobSteps"):
            pages = self._sagemaker.get_paginator("list_inference_recommendations_job_steps").paginate(JobName=name)
            return [step for page in pages for step in page["Steps"]]

    def stop_job(self, name: str) -> None:
        with translate_aws_errors("StopInferenceRecommendationsJob"):
            self._sagemaker.stop_inference_recommendations_job(JobName=name)

    def job_tags(self, job_arn: str) -> dict[str, str]:
        return self._tags(job_arn)

    def invocations_url(self, endpoint: str) -> str | None:
        """Returns the address of the server behind an endpoint, past an account on this machine; None on AWS itself."""
        with translate_aws_errors("DescribeEndpoint"):
            arn = self._sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointArn"]
        return self._tags(arn).get(INVOCATIONS_URL_TAG)

    def _tags(self, arn: str) -> dict[str, str]:
        with translate_aws_errors("ListTags"):
            pages = self._sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
            return {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}

    def measured_on(self, job_arn: str) -> str | None:
        """Returns the machine on which an account that is not AWS measured; None on AWS itself."""
        return self.job_tags(job_arn).get(MEASURED_ON_TAG)

    def scaling_configuration(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with translate_aws_errors("GetScalingConfigurationRecommendation"):
            return _without_metadata(self._sagemaker.get_scaling_configuration_recommendation(**request))

    def container_log(self, job_name: str, endpoint_name: str) -> list[str]:
        """Returns the last lines of a test's container; none where there is no log or it may not be read."""
        for group, prefix in (
            (ENDPOINT_LOG.format(endpoint=endpoint_name), None),
            (JOB_LOG, f"{job_name}/Endpoint/{endpoint_name}"),
        ):
            try:
                if lines := last_lines(self, group, LOG_LINES, prefix=prefix):
                    return lines
            except AwsRefused as error:
                if error.code not in DENIED:
                    raise
        return []

    def series(
        self,
        describe: Mapping[str, Any],
        steps: Sequence[Mapping[str, Any]],
        deployed: DeployedEndpoint | None,
        percentile: str,
    ) -> dict[str, Series]:
        """Returns the time series of every test of a job, by endpoint name, with the model latency at `percentile`."""
        name, start = describe["JobName"], describe["CreationTime"]
        end = describe.get("CompletionTime") or datetime.now(UTC)
        with translate_aws_errors("GetMetricData"):
            return {
                endpoint: fetch_series(self.client("cloudwatch"), name, endpoint, variant, start, end, percentile)
                for endpoint, variant in _variants(describe, steps, deployed).items()
            }

    def latest_series(self, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> list[Series]:
        """Returns the last moments of every test under way."""
        name, now = describe["JobName"], datetime.now(UTC)
        with translate_aws_errors("GetMetricData"):
            return [
                fetch_time_series(self.client("cloudwatch"), name, endpoint, now - LATEST, now)
                for endpoint in _variants(describe, steps, None)
            ]

    @property
    def _sagemaker(self) -> Any:
        return self.client("sagemaker")


def _variants(
    describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], deployed: DeployedEndpoint | None
) -> dict[str, str]:
    """Returns the variant's name by the endpoint's, for every test whose endpoint is known."""
    endpoints = [result["EndpointConfiguration"] for result in results(describe, steps, deployed)]
    return {endpoint["EndpointName"]: endpoint["VariantName"] for endpoint in endpoints if "VariantName" in endpoint}


def deployed_workload(name: str, target: str | None, aws: Aws | None, endpoint: str | None = None) -> WorkloadFolder:
    """Returns a workload on `target`, else on what its stack deployed where `aws` knows, else on hosting.target.

    Raises `UsageError` for a target that it does not have.
    """
    folder = load_workload(name)
    if target is None and aws is not None:
        target = aws.hosted_target(folder.workload.stack_name, endpoint)
    if target is None or target == folder.workload.hosting.target:
        return folder
    folder.variant(target)
    return folder.hosted_on(target)


def resource_id(endpoint: str, variant: str) -> str:
    """Returns application autoscaling's name of a variant."""
    return f"endpoint/{endpoint}/variant/{variant}"


def deployed_endpoint(
    endpoint: Mapping[str, Any], config: Mapping[str, Any], scalable_targets: Sequence[Mapping[str, Any]]
) -> DeployedEndpoint:
    """Judges an endpoint for a job by the exclusions that AWS documents: a job on an existing endpoint takes one
    variant, in service, on instances, not scaled. The arguments are the responses of DescribeEndpoint,
    DescribeEndpointConfig and DescribeScalableTargets. Whether other clients use the endpoint meanwhile is not known.

    Raises `AwsUnavailable` with the reason.
    """
    name, variants = endpoint["EndpointName"], config["ProductionVariants"]
    if endpoint["EndpointStatus"] != "InService":
        raise _unsuitable(name, f"it is {endpoint['EndpointStatus']}. Wait until it is InService.")
    if len(variants) != 1:
        raise _unsuitable(name, f"it has {len(variants)} variants, and a job takes one.")
    (variant,) = variants
    if "InstanceType" not in variant:
        raise _unsuitable(name, "it is serverless, and a job takes a real-time endpoint on instances.")
    if config.get("AsyncInferenceConfig"):
        raise _unsuitable(name, "it is asynchronous, and a job takes a real-time endpoint.")
    if scalable_targets:
        raise _unsuitable(
            name,
            "autoscaling is on, and a job takes an endpoint of a fixed size. Test a copy of it, or deregister the "
            f"scalable target {resource_id(name, variant['VariantName'])} for as long as the job runs.",
        )
    counts = {item["VariantName"]: item.get("CurrentInstanceCount") for item in endpoint.get("ProductionVariants", [])}
    return DeployedEndpoint(
        name=name,
        variant_name=variant["VariantName"],
        instance_type=variant["InstanceType"],
        instance_count=counts.get(variant["VariantName"]) or variant["InitialInstanceCount"],
    )


def _not_deployed(stack: str, missing: str, instead: str) -> AwsUnavailable:
    return AwsUnavailable(f"{missing} Run `cdk deploy {stack}` first{instead}.")


def _unsuitable(name: str, why: str) -> AwsUnavailable:
    return AwsUnavailable(f"--endpoint: {name} cannot be tested by an Inference Recommender job: {why}")


def _without_metadata(response: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in response.items() if key != "ResponseMetadata"}


class MetricData(Protocol):
    """The part of boto3's CloudWatch client that this module uses."""

    def get_metric_data(self, **request: Any) -> Mapping[str, Any]: ...


def time_series_queries(
    job_name: str, endpoint_name: str, period_s: int, judged: tuple[str, str] | None = None
) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries for one test's time series. `judged` is the endpoint's variant and the percentile
    of its model latency that is asked for besides, if any.
    """
    dimensions = {"JobName": job_name, "EndpointName": endpoint_name}
    wanted = {
        "users": ("NumberOfUsers", "Maximum"),
        "invocations": ("ClientInvocations", "Sum"),
        "errors": ("ClientInvocationErrors", "Sum"),
        "stalled": ("MachineStalledSeconds", "Sum"),
        **{name: ("ClientLatency", name) for name in LATENCIES},
    }
    asked = [_query(key, JOB_NAMESPACE, metric, dimensions, stat, period_s) for key, (metric, stat) in wanted.items()]
    if judged is None:
        return asked
    variant, percentile = judged
    of_variant = {"EndpointName": endpoint_name, "VariantName": variant}
    return [*asked, _query(MODEL_LATENCY, ENDPOINT_NAMESPACE, "ModelLatency", of_variant, percentile, period_s)]


def quantile_queries(endpoint_name: str, variant_name: str) -> list[dict[str, Any]]:
    """Returns the MetricDataQueries for the quantiles of model latency over a whole day. A test that crosses midnight
    UTC falls into two points.
    """
    dimensions = {"EndpointName": endpoint_name, "VariantName": variant_name}
    return [
        _query(f"q{number}", ENDPOINT_NAMESPACE, "ModelLatency", dimensions, stat, DAY_S)
        for number, stat in enumerate(("SampleCount", *QUANTILES))
    ]


def fetch_series(
    client: MetricData,
    job_name: str,
    endpoint_name: str,
    variant_name: str,
    start: datetime,
    end: datetime,
    percentile: str,
) -> Series:
    """Returns one test's time series and quantiles between `start` and `end`; empty where CloudWatch has nothing.
    `percentile` ("p99") is that of the model latency of each point.
    """
    quantiles = _results(client, quantile_queries(endpoint_name, variant_name), _window(start, end))
    time_series = fetch_time_series(client, job_name, endpoint_name, start, end, (variant_name, percentile))
    return time_series.model_copy(update={"model_latency_quantiles_ms": quantiles_ms(quantiles)})


def fetch_time_series(
    client: MetricData,
    job_name: str,
    endpoint_name: str,
    start: datetime,
    end: datetime,
    judged: tuple[str, str] | None = None,
) -> Series:
    """Returns the time series without quantiles, at the finest period that has points; `judged` as in
    `time_series_queries`.
    """
    duration_s = (end - start).total_seconds()
    for period in (*(step for step, longest_s in FINER_STEPS.items() if duration_s <= longest_s), 60):
        queries = time_series_queries(job_name, endpoint_name, period, judged)
        time_series = series(_results(client, queries, _window(start, end)), period, judged[1] if judged else None)
        if time_series.seconds:
            break
    return time_series


def series(points: Mapping[str, Mapping[datetime, float]], period_s: int, judged: str | None = None) -> Series:
    """Returns the columns, aligned on the timestamps at which there were invocations. `points` is by query id; `judged`
    is the percentile of the model latency, which CloudWatch has in µs.
    """
    times = sorted(points.get("invocations", {}))

    def column(key: str, divisor: float = 1.0) -> tuple[float | None, ...]:
        values = points.get(key, {})
        return tuple(values[time] / divisor if time in values else None for time in times)

    return Series(
        period_s=period_s,
        seconds=tuple((time - times[0]).total_seconds() for time in times),
        users=column("users"),
        invocations=column("invocations"),
        errors=column("errors"),
        stalled_s=column("stalled") if points.get("stalled") else (),
        latency_ms={name: column(name) for name in LATENCIES},
        model_latency_ms={judged: column(MODEL_LATENCY, 1000)} if judged and points.get(MODEL_LATENCY) else {},
    )


def quantiles_ms(points: Mapping[str, Mapping[datetime, float]]) -> dict[str, float]:
    """Returns the quantiles of the day with most samples, converted from µs to ms. `points` is by query id."""
    counts = points.get("q0", {})
    if not counts:
        return {}
    day = max(counts, key=lambda time: counts[time])
    values = {stat: points.get(f"q{number}", {}).get(day) for number, stat in enumerate(QUANTILES, start=1)}
    return {stat: value / 1000 for stat, value in values.items() if value is not None}


def _window(start: datetime, end: datetime) -> dict[str, datetime]:
    """Returns the window with a minute to spare on both sides, since a point's time is the beginning of its period."""
    return {"StartTime": start - timedelta(seconds=60), "EndTime": end + timedelta(seconds=60)}


def _query(
    key: str, namespace: str, metric: str, dimensions: Mapping[str, str], stat: str, period_s: int
) -> dict[str, Any]:
    return {
        "Id": key,
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": metric,
                "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
            },
            "Period": period_s,
            "Stat": stat,
        },
    }


def _results(
    client: MetricData, queries: Iterable[dict[str, Any]], window: Mapping[str, datetime]
) -> dict[str, dict[datetime, float]]:
    points: dict[str, dict[datetime, float]] = {}
    request: dict[str, Any] = {"MetricDataQueries": list(queries), **window}
    while True:
        response = client.get_metric_data(**request)
        for result in response["MetricDataResults"]:
            points.setdefault(result["Id"], {}).update(zip(result["Timestamps"], result["Values"], strict=True))
        if not (token := response.get("NextToken")):
            return points
        request["NextToken"] = token
