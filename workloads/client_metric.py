"""The metric of the callers' latency, which the client publishes and the stacks watch."""

from collections.abc import Mapping

METRIC_NAMESPACE = "TransformersInProduction"
CLIENT_LATENCY = "ClientLatency"
"""How long a caller waited for an answer or for the last error, retries included, in milliseconds: one value a call."""


def metric_dimensions(workload: str, stack: str) -> Mapping[str, str]:
    """Returns the dimensions of the custom metrics. The CloudFormation stack that serves the callers tells beta from
    production, which would else share one metric in one account, and with it an alarm that rolls back.
    """
    return {"Workload": workload, "Stack": stack}
