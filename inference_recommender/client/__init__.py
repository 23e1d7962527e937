"""A client for production code: tensors in, tensors out, from a SageMaker endpoint or any KServe v2 server.

    stack = "Production-SpellcheckStack"   # serves the model; its alarms watch the metric
    with LatencyMetric("spellcheck", stack) as metric, SageMakerEndpoint(stack) as endpoint:
        client = InferenceClient(endpoint, latency=metric)
        answer = client.infer({"TEXT": [["runing sheos"]]})   # {"CORRECTED": array([[b"running shoes"]])}

Requests are KServe v2, in binary unless JSON is asked for. Throttled and failed requests are repeated after a wait; a
request that ran out of time, or that cannot succeed, is not. `timeout_s` of a server bounds an attempt, `deadline_s`
of the client all attempts of a call with their waits. How long callers waited goes to CloudWatch in the background, and
a metric that cannot be sent never fails a request. A client may be used by many threads at once.
"""

from inference_recommender.client.failures import InferenceFailed, NotAnAnswer, Refused, TimedOut, Unreachable
from inference_recommender.client.inference import InferenceClient, Retries
from inference_recommender.client.kserve import CannotEncode
from inference_recommender.client.latency_metric import LatencyMetric
from inference_recommender.client.servers import HttpServer, SageMakerEndpoint

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
