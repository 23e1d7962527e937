"""A user of the SageMaker Python SDK 3: builds a model, has it right-sized, deploys it, asks it. Prints JSON.

Run with `.venv-clients-3/bin/python`, and with AWS_ENDPOINT_URL of the account. Only the pauses between two looks are
shortened.
"""

import json
import sys
import time
from importlib.metadata import version
from typing import Any

from sagemaker.core.helper.session_helper import Session
from sagemaker.core.inference_recommender.inference_recommender_mixin import ModelLatencyThreshold, Phase
from sagemaker.core.parameter import CategoricalParameter
from sagemaker.serve import ModelBuilder

role, image, bucket = sys.argv[1:]
pause = time.sleep
time.sleep = lambda seconds: pause(min(seconds, 0.2))

builder = ModelBuilder(
    image_uri=image,
    s3_model_data_url=f"s3://{bucket}/echo.tar.gz",
    role_arn=role,
    sagemaker_session=Session(default_bucket=bucket),
    instance_type="ml.c5.xlarge",
)
model = builder.build(model_name="sdk-3")
results: dict[str, Any] = {"sagemaker-serve": version("sagemaker-serve"), "model": model.model_name}

builder.right_size(
    sample_payload_url=f"s3://{bucket}/payloads.tar.gz",
    supported_content_types=["application/json"],
    framework="PYTORCH",
    framework_version="2.0.0",
    job_name="sdk-3-job",
    job_duration_in_seconds=7200,
    hyperparameter_ranges=[
        {
            "instance_types": CategoricalParameter(["ml.c5.xlarge"]),
            "OMP_NUM_THREADS": CategoricalParameter(["1"]),
        }
    ],
    phases=[Phase(duration_in_seconds=5, initial_number_of_users=1, spawn_rate=0)],
    traffic_type="PHASES",
    max_invocations=30000,
    model_latency_thresholds=[ModelLatencyThreshold(percentile="P95", value_in_milliseconds=100)],
    max_tests=1,
    max_parallel_tests=1,
)
results["recommended"] = builder.inference_recommendations[0]["EndpointConfiguration"]["InstanceType"]

endpoint = builder.deploy(endpoint_name="sdk-3", instance_type="ml.c5.xlarge", initial_instance_count=1)
question = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["hello"]}]}
answer = endpoint.invoke(body=json.dumps(question), content_type="application/json")
results["json"] = json.loads(answer.body.read())["outputs"][0]["data"]
endpoint.delete()
endpoint.wait_for_delete()
print("\n" + json.dumps(results))
