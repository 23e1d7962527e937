"""The AWS adapter of experiments: models and endpoints that live as long as they are measured."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from aws_api import s3
from aws_api.errors import AwsUnavailable, NotFound, translate_aws_errors
from aws_api.logs import first_events
from inference_recommender.measure.aws import ENDPOINT_LOG
from inference_recommender.measure.load_test_aws import LoadTestAws
from inference_recommender.measure.start_stages import LogLine

HARDWARE_NAMESPACE = "/aws/sagemaker/Endpoints"
"""SageMaker publishes an instance's CPU, memory and GPUs here, each minute."""


class ExperimentAws(LoadTestAws):
    """An `Account`."""

    def upload_archive(self, url: str, file: Path) -> None:
        if s3.size(self, url) != file.stat().st_size:
            s3.upload_file(self, url, file, make_bucket=True)

    def make_model(self, request: Mapping[str, Any]) -> None:
        name = request["ModelName"]
        if (existing := self._model(name)) is None:
            with translate_aws_errors("CreateModel"):
                self._sagemaker.create_model(**request)
            return
        if existing["PrimaryContainer"].get("ModelDataUrl") != request["PrimaryContainer"]["ModelDataUrl"]:
            raise AwsUnavailable(
                f"There is already a SageMaker model called '{name}' that this experiment did not make."
            )
        self._tag(existing["ModelArn"], request)

    def delete_model(self, name: str) -> None:
        with suppress(NotFound), translate_aws_errors("DeleteModel"):
            self._sagemaker.delete_model(ModelName=name)

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        name = endpoint["EndpointName"]
        with translate_aws_errors("CreateEndpointConfig"):
            if not _created(self._sagemaker.create_endpoint_config, config):
                found = self._sagemaker.describe_endpoint_config(EndpointConfigName=name)
                self._tag(found["EndpointConfigArn"], config)
        with translate_aws_errors("CreateEndpoint"):
            if not _created(self._sagemaker.create_endpoint, endpoint):
                self._tag(self._sagemaker.describe_endpoint(EndpointName=name)["EndpointArn"], endpoint)

    def endpoint_status(self, name: str) -> tuple[str, str | None]:
        with translate_aws_errors("DescribeEndpoint"):
            described = self._sagemaker.describe_endpoint(EndpointName=name)
        return str(described["EndpointStatus"]), described.get("FailureReason")

    def endpoint_times(self, name: str) -> tuple[datetime, datetime]:
        """Returns when the endpoint was asked for, and when it was last changed."""
        with translate_aws_errors("DescribeEndpoint"):
            described = self._sagemaker.describe_endpoint(EndpointName=name)
        return described["CreationTime"], described["LastModifiedTime"]

    def endpoint_log(self, name: str) -> list[list[LogLine]]:
        """Returns the beginning of each of the endpoint's servers' logs; none where there is no log."""
        streams = first_events(self, ENDPOINT_LOG.format(endpoint=name))
        return [[LogLine(written_at=at, text=text) for at, text in events] for events in streams]

    def delete_endpoint(self, name: str) -> None:
        with suppress(NotFound), translate_aws_errors("DeleteEndpoint"):
            self._sagemaker.delete_endpoint(EndpointName=name)
        with suppress(NotFound), translate_aws_errors("DeleteEndpointConfig"):
            self._sagemaker.delete_endpoint_config(EndpointConfigName=name)

    def gpu_utilization(self, endpoint: str, variant: str, start: datetime, end: datetime) -> float | None:
        of_variant = [{"Name": "EndpointName", "Value": endpoint}, {"Name": "VariantName", "Value": variant}]
        metric = {"Namespace": HARDWARE_NAMESPACE, "MetricName": "GPUUtilization", "Dimensions": of_variant}
        query = {"Id": "gpu", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Average"}}
        with translate_aws_errors("GetMetricData"):
            found = self.client("cloudwatch").get_metric_data(MetricDataQueries=[query], StartTime=start, EndTime=end)
        return max((float(value) for result in found["MetricDataResults"] for value in result["Values"]), default=None)

    def image_uri(self, model_name: str) -> str:
        """Returns the container's image of an existing model."""
        with translate_aws_errors("DescribeModel"):
            return str(self._sagemaker.describe_model(ModelName=model_name)["PrimaryContainer"]["Image"])

    def _tag(self, arn: str, request: Mapping[str, Any]) -> None:
        """Gives what was left behind, perhaps long ago, the expiry of a new request for it."""
        with translate_aws_errors("AddTags"):
            self._sagemaker.add_tags(ResourceArn=arn, Tags=request["Tags"])

    def _model(self, name: str) -> Mapping[str, Any] | None:
        try:
            with translate_aws_errors("DescribeModel"):
                described: Mapping[str, Any] = self._sagemaker.describe_model(ModelName=name)
        except NotFound:
            return None
        return described


def _created(call: Callable[..., Any], request: Mapping[str, Any]) -> bool:
    """Returns False where the name exists already; the service has no error code of its own for that."""
    try:
        call(**request)
    except ClientError as error:
        if "already existing" not in str(error):
            raise
        return False
    return True
