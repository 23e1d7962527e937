"""A user of the SageMaker Python SDK 2: deploys an archive, asks it, has it right-sized, deletes it. Prints JSON.

Run with `.venv-clients/bin/python`, and with AWS_ENDPOINT_URL of the account. The SDK pauses for up to two minutes
between two looks at a job: the pauses alone are shortened here.
"""

import json
import sys
import time
from importlib.metadata import version
from typing import Any

import numpy as np
import sagemaker
import tritonclient.http as triton
from sagemaker.deserializers import JSONDeserializer
from sagemaker.inference_recommender.inference_recommender_mixin import ModelLatencyThreshold, Phase
from sagemaker.model import Model
from sagemaker.parameter import CategoricalParameter
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer
from sagemaker.session import Session

role, image, bucket = sys.argv[1:]
pause = time.sleep
time.sleep = lambda seconds: pause(min(seconds, 0.2))

# Without a bucket the session would ask STS at its real address, whatever AWS_ENDPOINT_URL says.
session = Session(default_bucket=bucket)
model = Model(
    image_uri=image,
    model_data=f"s3://{bucket}/echo.tar.gz",
    role=role,
    name="sdk-2",
    predictor_cls=Predictor,
    sagemaker_session=session,
)
results: dict[str, Any] = {"sagemaker": sagemaker.__version__, "tritonclient": version("tritonclient")}

model.right_size(
    sample_payload_url=f"s3://{bucket}/payloads.tar.gz",
    supported_content_types=["application/json"],
    framework="PYTORCH",
    job_name="sdk-2-job",
    job_duration_in_seconds=7200,
    hyperparameter_ranges=[
        {
            "instance_types": CategoricalParameter(["ml.c5.xlarge"]),
            "OMP_NUM_THREADS": CategoricalParameter(["1"]),  # the SDK sends an empty list where there is none
        }
    ],
    phases=[Phase(duration_in_seconds=5, initial_number_of_users=1, spawn_rate=0)],
    traffic_type="PHASES",
    max_invocations=30000,
    model_latency_thresholds=[ModelLatencyThreshold(percentile="P95", value_in_milliseconds=100)],
    max_tests=1,
    max_parallel_tests=1,
)
recommendation = model.inference_recommendations[0]
results["recommended"] = recommendation["EndpointConfiguration"]["InstanceType"]
results["model_latency"] = recommendation["Metrics"]["ModelLatency"]

predictor = model.deploy(
    initial_instance_count=1,
    instance_type="ml.c5.xlarge",
    endpoint_name="sdk-2",
    serializer=JSONSerializer(),
    deserializer=JSONDeserializer(),
)
question = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["hello"]}
results["json"] = predictor.predict({"inputs": [question]})["outputs"][0]["data"]

# The binary form, as NVIDIA's own client writes and reads it, in the content type of the SageMaker Triton image.
text = triton.InferInput("TEXT", [2, 1], "BYTES")
text.set_data_from_numpy(np.array([[b"one"], [b"two"]], dtype=object), binary_data=True)
wanted = triton.InferRequestedOutput("OUT", binary_data=True)
body, header_length = triton.InferenceServerClient.generate_request_body([text], outputs=[wanted])
content_type = f"application/vnd.sagemaker-triton.binary+json;json-header-size={header_length}"
answer = session.sagemaker_runtime_client.invoke_endpoint(
    EndpointName="sdk-2", ContentType=content_type, Accept=content_type, Body=body
)
_, _, header_size = answer["ContentType"].partition("json-header-size=")
read = triton.InferenceServerClient.parse_response_body(answer["Body"].read(), header_length=int(header_size))
results["binary"] = [text.decode() for text in read.as_numpy("OUT").ravel()]

predictor.delete_endpoint(delete_endpoint_config=True)
session.sagemaker_client.get_waiter("endpoint_deleted").wait(EndpointName="sdk-2")
print("\n" + json.dumps(results))
