"""The custom CloudWatch metric of end-to-end latency: who serves traffic publishes it, a stack's alarms read it.

A value per call: how long the caller waited for an answer or for the last error, retries included.
"""

NAMESPACE = "TransformersInProduction"
METRIC_NAME = "ClientLatency"
DIMENSION = "Workload"
"""Its value is the workload's name."""
UNIT = "Milliseconds"
