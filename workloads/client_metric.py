"""The custom CloudWatch metric of end-to-end latency: client code publishes it, a stack's alarms read it.

Each call has one value: how long the caller waited for an answer or for the last error, retries included.
"""

from collections.abc import Mapping

NAMESPACE = "TransformersInProduction"
METRIC_NAME = "ClientLatency"
UNIT = "Milliseconds"


def dimensions(workload: str, stack: str) -> Mapping[str, str]:
    """Returns the dimensions of the metric. The CloudFormation stack that serves the callers tells beta from
    production, which would else share one metric in one account, and with it an alarm that rolls back.
    """
    return {"Workload": workload, "Stack": stack}
