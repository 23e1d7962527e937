"""A scaling service with a clock of the test's, on metrics that the test writes; instances are a number."""

from dataclasses import dataclass, field
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.core.models import DEFAULT_ACCOUNT_ID

from local_aws.cloudwatch import Distribution, LocalCloudWatchBackend, metric_key
from local_aws.scaling.alarms import DIMENSION, NAMESPACE
from local_aws.scaling.scaler import Scaler
from local_aws.scaling.service import LocalScalingBackend

RESOURCE = "endpoint/shop/variant/AllTraffic"
START = 1_767_571_200.0
"""Monday, 2026-01-05, midnight in UTC."""
DIMENSIONS = [{"Name": "EndpointName", "Value": "shop"}, {"Name": "VariantName", "Value": "AllTraffic"}]
INVOCATIONS = "SageMakerVariantInvocationsPerInstance"
CONCURRENCY = "SageMakerVariantConcurrentRequestsPerModelHighResolution"


@dataclass
class Instances:
    """A variant's instances; a change takes effect when the test says so, at once by default."""

    now: int = 1
    asked: list[int] = field(default_factory=list)
    updating: bool = False
    """Whether changes stay in progress until `finish`."""
    failed: str | None = None
    _wanted: int | None = None

    def count(self, resource_id: str) -> int | None:
        assert resource_id == RESOURCE
        return self.now if self._wanted is None else None

    def problem(self, resource_id: str) -> str | None:
        return self.failed

    def set_count(self, resource_id: str, count: int) -> None:
        assert self._wanted is None, "an endpoint that is Updating refuses"
        self.asked.append(count)
        self._wanted = count
        if not self.updating:
            self.finish()

    def finish(self) -> None:
        if self._wanted is not None and self.failed is None:
            self.now = self._wanted
        self._wanted = None


class Scaled:
    """One variant with a target of 1 to 10 instances. Minutes are numbered from `START`."""

    def __init__(self, instances: int = 1, **tracking: Any) -> None:
        self.instances = Instances(instances)
        self.cloudwatch = LocalCloudWatchBackend("us-east-1", DEFAULT_ACCOUNT_ID)
        # moto's policies delete their alarms by way of its table of backends.
        cloudwatch_backends[DEFAULT_ACCOUNT_ID]["us-east-1"] = self.cloudwatch
        self.service = LocalScalingBackend("us-east-1", DEFAULT_ACCOUNT_ID)
        self.service.capacity = self.instances  # type: ignore[assignment]
        self.register(1, 10)
        self.put_policy(**tracking)
        self.scaler = Scaler(self.service, self.cloudwatch, now=lambda: START)
        self.minute = 0
        """The next minute that has no datapoints."""

    def register(self, low: int, high: int, suspended: dict[str, bool] | None = None) -> None:
        about = {"min_capacity": low, "max_capacity": high, "role_arn": "role", "suspended_state": suspended}
        self.service.register_scalable_target(NAMESPACE, RESOURCE, DIMENSION, **about)

    def put_policy(self, name: str = "Policy", metric: str = INVOCATIONS, target: float = 100, **more: Any) -> Any:
        specification = {"PredefinedMetricSpecification": {"PredefinedMetricType": metric}}
        tracking = {"TargetValue": target, **specification, **more}
        return self.service.put_scaling_policy(
            policy_name=name,
            service_namespace=NAMESPACE,
            resource_id=RESOURCE,
            scalable_dimension=DIMENSION,
            policy_body=tracking,
            policy_type="TargetTrackingScaling",
        )

    def schedule(self, name: str, expression: str, bounds: dict[str, int], zone: str = "UTC") -> None:
        self.service.put_scheduled_action(NAMESPACE, expression, zone, name, RESOURCE, DIMENSION, "", "", bounds)  # type: ignore[arg-type]

    def put(self, value: float, second: float, metric: str = "InvocationsPerInstance") -> None:
        self.cloudwatch.put(
            metric_key("AWS/SageMaker", metric, DIMENSIONS), Distribution(second, (value,), (1.0,), "None")
        )

    def pass_minutes(self, *values: float | None) -> list[int]:
        """Lets minutes pass with these values of InvocationsPerInstance, None for no datapoint.

        Returns the instances two seconds after the end of each.
        """
        counts = []
        for value in values:
            begins = START + self.minute * 60
            if value is not None:
                self.put(value, begins + 30)
            for second in range(10, 60, 10):
                self.scaler.tick(begins + second)
            self.minute += 1
            self.scaler.tick(begins + 62)
            counts.append(self.instances.now)
        return counts

    def state(self, which: str, policy: str = "Policy") -> str:
        """Returns the state of the policy's AlarmHigh or AlarmLow."""
        (found,) = [each for each in self.service.policies.values() if each.policy_name == policy]
        (alarm,) = [each for each in found.alarms if which in each.name]
        return alarm.state_value

    def activities(self) -> list[dict[str, Any]]:
        return [each.described() for each in self.service.activities]
