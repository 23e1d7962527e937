"""The custom CloudWatch metric of end-to-end latency: who serves traffic publishes it, a stack's alarms read it.

One datum per workload: what a caller waited, from the intended call to the answer, retries included.
"""

NAMESPACE = "TransformersInProduction"
METRIC_NAME = "ClientLatency"
DIMENSION = "Workload"
"""Its value is the workload's name."""
UNIT = "Milliseconds"
