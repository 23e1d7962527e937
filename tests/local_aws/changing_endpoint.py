"""An endpoint of a local account that changes under load."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

from inference_recommender.client import SageMakerEndpoint, servers
from inference_recommender.client.inference import Server
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import Endpoints, clients, gone, put_alarm, upload, wait_until


def _shift(**routing: object) -> dict[str, Any]:
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": {"WaitIntervalInSeconds": 60, **routing}}}


CONNECTIONS = 128
STEP = {"Type": "INSTANCE_COUNT", "Value": 1}
LINEAR = _shift(Type="LINEAR", LinearStepSize=STEP)
UPDATES = {
    "all-at-once": _shift(Type="ALL_AT_ONCE"),
    "canary": _shift(Type="CANARY", CanarySize=STEP),
    "linear": LINEAR,
    "rolling": {"RollingUpdatePolicy": {"WaitIntervalInSeconds": 60, "MaximumBatchSize": STEP}},
    "rollback": {**LINEAR, "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "slow"}]}},
}
COUNTS, SIGNALS = {"scale-out": 1, "scale-in": -1}, {"killed": signal.SIGKILL, "hangs": signal.SIGSTOP}
CHANGES = (*UPDATES, *COUNTS, *SIGNALS)
Change = Callable[[str], tuple[float, float]]
"""Makes a change. Returns the `time.monotonic` before an instance is killed and after its end, or `PLANNED`."""
PLANNED = (0.0, 0.0)


def signal_all(pids: Sequence[int], number: signal.Signals) -> tuple[float, float]:
    begin_s = time.monotonic()
    for pid in pids:
        os.kill(pid, number)
    wait_until(lambda: number == signal.SIGSTOP or all(map(gone, pids)), every_s=0.001)
    return (begin_s, time.monotonic()) if number == signal.SIGKILL else PLANNED


@contextmanager
def endpoint(folder: Path) -> Iterator[tuple[Server, Change]]:
    with LocalAccount.start(state=folder / "account", servers=3, pace="quick") as account:
        upload(account)
        client, name = clients(account), "changing"
        sagemaker, cloudwatch, made = client("sagemaker"), client("cloudwatch"), Endpoints(client("sagemaker"))
        put_alarm(cloudwatch, "slow")
        for config in ("first", *UPDATES):
            made.config(config, count=2, DELAY_S="0.02", COMPUTED=str(folder / "computed"))
        made.settled(made.create(name, config="first"))

        def change(change: str) -> tuple[float, float]:
            log = account.log_file.read_text
            pids, shifts = re.findall(r"is answered by Triton \(process (\d+)", log()), log().count("fleet takes")
            if change in SIGNALS:
                newest = next(pid for pid in map(int, reversed(pids)) if not gone(pid))
                signalled = signal_all([newest], SIGNALS[change])
                wait_until(lambda: log().count("is answered by") > len(pids))
                return signalled
            if change in COUNTS:
                (variant,) = made.settled(name)["ProductionVariants"]
                count = variant["CurrentInstanceCount"] + COUNTS[change]
                desired = [{"VariantName": variant["VariantName"], "DesiredInstanceCount": count}]
                scale = sagemaker.update_endpoint_weights_and_capacities
                scale(EndpointName=name, DesiredWeightsAndCapacities=desired)
            else:
                update = {"EndpointConfigName": change, "DeploymentConfig": UPDATES[change]}
                sagemaker.update_endpoint(EndpointName=name, **update)
            if change == "rollback":
                wait_until(lambda: log().count("fleet takes") > shifts)
                time.sleep(0.5)  # some requests reach the new fleet
                cloudwatch.set_alarm_state(AlarmName="slow", StateValue="ALARM", StateReason="A benchmark.")
            described = made.settled(name)
            assert ("FailureReason" in described) is (change == "rollback"), described
            return PLANNED

        settings = servers.config(servers.TIMEOUT_S, CONNECTIONS)
        runtime = boto3.client("sagemaker-runtime", config=settings, **account.client_arguments())
        yield SageMakerEndpoint(name, client=runtime), change
