"""A user of sagemaker-core's resources: model, configuration, endpoint, recommendation job. Prints JSON.

Run with `.venv-clients-3/bin/python`, and with AWS_ENDPOINT_URL of the account. Only the pauses between two looks are
shortened.
"""

import json
import sys
import time
from importlib.metadata import version
from typing import Any

from sagemaker.core import shapes
from sagemaker.core.resources import Endpoint, EndpointConfig, InferenceRecommendationsJob, Model

role, image, bucket = sys.argv[1:]
pause = time.sleep
time.sleep = lambda seconds: pause(min(seconds, 0.2))

results: dict[str, Any] = {"sagemaker-core": version("sagemaker-core")}
container = shapes.ContainerDefinition(image=image, model_data_url=f"s3://{bucket}/echo.tar.gz")
model = Model.create(model_name="core", primary_container=container, execution_role_arn=role)
variant = shapes.ProductionVariant(
    variant_name="AllTraffic", model_name="core", instance_type="ml.c5.xlarge", initial_instance_count=1
)
config = EndpointConfig.create(endpoint_config_name="core", production_variants=[variant])
endpoint = Endpoint.create(endpoint_name="core", endpoint_config_name=config)
endpoint.wait_for_status("InService")
question = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["hello"]}]}
answer = endpoint.invoke(body=json.dumps(question), content_type="application/json")
results["json"] = json.loads(answer.body.read())["outputs"][0]["data"]

phase = shapes.Phase(initial_number_of_users=1, spawn_rate=0, duration_in_seconds=5)
payload = shapes.RecommendationJobPayloadConfig(
    sample_payload_url=f"s3://{bucket}/payloads.tar.gz", supported_content_types=["application/json"]
)
job = InferenceRecommendationsJob.create(
    job_name="core-job",
    job_type="Advanced",
    role_arn=role,
    input_config=shapes.RecommendationJobInputConfig(
        model_name="core",
        job_duration_in_seconds=7200,
        traffic_pattern=shapes.TrafficPattern(traffic_type="PHASES", phases=[phase]),
        resource_limit=shapes.RecommendationJobResourceLimit(max_number_of_tests=1, max_parallel_of_tests=1),
        endpoint_configurations=[shapes.EndpointInputConfiguration(instance_type="ml.c5.xlarge")],
        container_config=shapes.RecommendationJobContainerConfig(
            domain="NATURAL_LANGUAGE_PROCESSING",
            framework="PYTORCH",
            framework_version="2.0.0",
            payload_config=payload,
        ),
    ),
    stopping_conditions=shapes.RecommendationJobStoppingConditions(
        max_invocations=30000,
        model_latency_thresholds=[shapes.ModelLatencyThreshold(percentile="P95", value_in_milliseconds=100)],
    ),
)
job.wait(poll=1)
results["recommended"] = job.inference_recommendations[0].endpoint_configuration.instance_type
results["steps"] = [step.status for step in job.get_all_steps()]

endpoint.delete()
endpoint.wait_for_delete()
config.delete()
model.delete()
print("\n" + json.dumps(results))
