"""AWS as an experiment needs it: models that live as long as their jobs, and the image they run in.

What it shares with a single run is `inference_recommender.aws`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inference_recommender.aws import Aws
from inference_recommender.aws_errors import speaking_plainly
from inference_recommender.errors import AwsRefused
from inference_recommender.experiment.errors import ModelTaken


class ExperimentAws(Aws):
    def upload_archive(self, url: str, file: Path) -> None:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        s3 = self._client("s3")
        with speaking_plainly("PutObject"):
            try:
                listed = s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("Contents", [])
            except s3.exceptions.NoSuchBucket:
                self._create_bucket(bucket)
                listed = []
            if [item["Size"] for item in listed if item["Key"] == key] != [file.stat().st_size]:
                s3.upload_file(str(file), bucket, key)

    def make_model(self, request: Mapping[str, Any]) -> None:
        name = request["ModelName"]
        if (there := self._model(name)) is None:
            with speaking_plainly("CreateModel"):
                self._sagemaker.create_model(**request)
        elif there["PrimaryContainer"].get("ModelDataUrl") != request["PrimaryContainer"]["ModelDataUrl"]:
            raise ModelTaken(name)

    def delete_model(self, name: str) -> None:
        if self._model(name) is not None:
            with speaking_plainly("DeleteModel"):
                self._sagemaker.delete_model(ModelName=name)

    def image_uri(self, model_name: str) -> str:
        """Of the container of a model that is there."""
        with speaking_plainly("DescribeModel"):
            return str(self._sagemaker.describe_model(ModelName=model_name)["PrimaryContainer"]["Image"])

    def _model(self, name: str) -> Mapping[str, Any] | None:
        try:
            with speaking_plainly("DescribeModel"):
                found: Mapping[str, Any] = self._sagemaker.describe_model(ModelName=name)
        except AwsRefused as error:
            if "Could not find model" in str(error):  # the service's code for it is a plain ValidationException
                return None
            raise
        return found
