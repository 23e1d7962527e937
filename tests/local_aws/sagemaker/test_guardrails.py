"""An update that deployment guardrails watch: it passes, or the old fleet answers again."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from local_aws.process.local_account import LocalAccount
from local_aws.sagemaker.guardrails import Guardrails
from tests.local_aws.conftest import Clients, Endpoints, put_alarm, refused, wait_until
from tests.local_aws.sagemaker.test_local_endpoints import invoke, triton_of

pytestmark = pytest.mark.integration


@pytest.fixture
def cloudwatch(client: Clients) -> Iterator[Any]:
    yield client("cloudwatch")
    client("cloudwatch").delete_alarms(AlarmNames=["slow", "slow-bad", "slow-fix"])


def guarded(*alarms: str) -> dict[str, Any]:
    canary = {"Type": "CANARY", "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 10}, "WaitIntervalInSeconds": 60}
    return {
        "BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": canary},
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": name} for name in alarms]},
    }


@pytest.mark.parametrize(
    ("routing", "steps"),
    [
        ({"Type": "ALL_AT_ONCE"}, [(1.0, 12)]),
        ({"Type": "CANARY", "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 30}}, [(0.3, 2), (1.0, 12)]),
        ({"LinearStepSize": {"Type": "CAPACITY_PERCENT", "Value": 50}}, [(0.5, 2), (1.0, 12)]),
        ({"LinearStepSize": {"Type": "INSTANCE_COUNT", "Value": 2}}, [(0.4, 2), (0.8, 2), (1.0, 12)]),
        ({"Type": "CANARY", "CanarySize": {"Type": "INSTANCE_COUNT", "Value": 9}}, [(1.0, 2), (1.0, 12)]),
    ],
)
def test_traffic_shifts_in_the_steps_of_the_policy(routing: dict[str, Any], steps: list[tuple[float, float]]) -> None:
    policy = {"TrafficRoutingConfiguration": routing | {"WaitIntervalInSeconds": 120}, "TerminationWaitInSeconds": 600}
    assert Guardrails({"BlueGreenUpdatePolicy": policy}, None).steps(5) == steps


def test_alarms_of_the_rollback_must_exist_and_one_that_is_on_keeps_the_old_fleet(
    endpoints: Endpoints, sagemaker: Any, cloudwatch: Any
) -> None:
    old, new = endpoints.config("guarded-old"), endpoints.config("guarded-new")
    name = endpoints.create("guarded", config=old)
    endpoints.settled(name)
    update = {"EndpointName": name, "EndpointConfigName": new, "DeploymentConfig": guarded("slow")}
    assert refused(sagemaker.update_endpoint, **update)[2] == (
        "AutoRollbackConfiguration names alarms that do not exist in us-east-1: slow. Create them first."
    )
    put_alarm(cloudwatch, "slow")
    cloudwatch.set_alarm_state(AlarmName="slow", StateValue="ALARM", StateReason="a test")
    sagemaker.update_endpoint(**update)
    described = endpoints.settled(name)
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", old)
    assert described["FailureReason"] == ("The update of endpoint guarded was rolled back: slow is in ALARM.")
    cloudwatch.set_alarm_state(AlarmName="slow", StateValue="OK", StateReason="a test")
    sagemaker.update_endpoint(**update)
    described = endpoints.settled(name)
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", new)
    assert described["LastDeploymentConfig"] == guarded("slow")


def test_an_alarm_on_the_new_fleet_rolls_back_and_lets_the_fix_of_that_fleet_pass(
    endpoints: Endpoints, sagemaker: Any, cloudwatch: Any, runtime: Any
) -> None:
    name = "fixed"

    def update(config: str, longest_ms: int, wait_s: int) -> None:
        dimensions = {"EndpointName": name, "VariantName": "AllTraffic", "EndpointConfigName": config}
        cloudwatch.put_metric_alarm(
            AlarmName=f"slow-{config}",
            Namespace="AWS/SageMaker",
            MetricName="ModelLatency",
            Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
            ExtendedStatistic="p99",
            Period=60,
            EvaluationPeriods=1,
            Threshold=longest_ms * 1000,
            ComparisonOperator="GreaterThanOrEqualToThreshold",
        )
        guard = guarded(f"slow-{config}")
        guard["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]["WaitIntervalInSeconds"] = wait_s
        sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=config, DeploymentConfig=guard)

    endpoints.settled(endpoints.create(name, config=endpoints.config("good", SAYS="old ")))
    update(endpoints.config("bad", SAYS="bad ", DELAY_S="0.2"), longest_ms=200, wait_s=3600)
    wait_until(lambda: invoke(runtime, name, "a") == ["bad a"])
    wait_until(lambda: invoke(runtime, name, "a") == ["old a"])
    described = endpoints.settled(name)
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "good")
    assert described["FailureReason"] == ("The update of endpoint fixed was rolled back: slow-bad is in ALARM.")
    update(endpoints.config("fix", SAYS="new "), longest_ms=60_000, wait_s=0)
    assert endpoints.settled(name)["EndpointConfigName"] == "fix"
    assert invoke(runtime, name, "a") == ["new a"]


def test_a_new_fleet_that_ends_during_its_update_is_rolled_back(
    endpoints: Endpoints, sagemaker: Any, account: LocalAccount
) -> None:
    name = endpoints.create("dying", config=endpoints.config("dying-old"))
    endpoints.settled(name)
    guard = guarded()
    del guard["AutoRollbackConfiguration"]
    guard["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]["WaitIntervalInSeconds"] = 3600
    config = endpoints.config("dying-new")
    sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=config, DeploymentConfig=guard)
    wait_until(lambda: f"endpoint {name}: the new fleet takes 10% of the traffic" in account.log_file.read_text())
    os.kill(triton_of(account, name), signal.SIGKILL)

    def status() -> str:
        return str(sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"])

    # Without a pause, so that a short "Failed" is seen.
    last = wait_until(lambda: (now := status()) not in ("Updating", "RollingBack") and now, every_s=0)
    described = endpoints.settled(name)
    assert (last, described["EndpointConfigName"]) == ("InService", "dying-old")
    assert described["FailureReason"].startswith("The update of endpoint dying was rolled back: The Triton server of")
