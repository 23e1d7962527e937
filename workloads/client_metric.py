"""The custom CloudWatch metric of end-to-end latency: client code publishes it, a stack's alarms read it.

Each call has one value: how long the caller waited for an answer or for the last error, retries included.
"""

NAMESPACE = "TransformersInProduction"
METRIC_NAME = "ClientLatency"
DIMENSION = "Workload"
"""Its value is the workload's name."""
UNIT = "Milliseconds"
