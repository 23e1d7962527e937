"""A client for production code: tensors in, tensors out, from a SageMaker endpoint or any KServe v2 server.

    stack = "Production-SpellcheckStack"   # serves the model; its alarms watch the metric
    with LatencyMetric("spellcheck", stack) as metric, SageMakerEndpoint(stack) as endpoint:
        client = InferenceClient(endpoint, latency=metric)
        answer = client.infer({"TEXT": [["runing sheos"]]})   # {"CORRECTED": array([[b"running shoes"]])}

Requests are KServe v2, in the binary form by default. The client retries throttled and failed requests after a wait. It
does not retry requests that cannot succeed, nor timeouts without `Retries(timeouts=True)`. A server's `timeout_s`
bounds one attempt. The client starts no attempt after its `deadline_s`. A metric that cannot be sent never fails a
request. Threads may share one client.
"""

from inference_recommender.client.inference import InferenceClient, Retries
from inference_recommender.client.latency_metric import LatencyMetric
from inference_recommender.client.servers import (
    HttpServer,
    InferenceFailed,
    NotAnAnswer,
    Refused,
    SageMakerEndpoint,
    TimedOut,
    Unreachable,
)
from inference_recommender.kserve import CannotEncode

__all__ = [
    "CannotEncode",
    "HttpServer",
    "InferenceClient",
    "InferenceFailed",
    "LatencyMetric",
    "NotAnAnswer",
    "Refused",
    "Retries",
    "SageMakerEndpoint",
    "TimedOut",
    "Unreachable",
]
