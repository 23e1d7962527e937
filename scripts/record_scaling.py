"""Records how the local account scales an endpoint, for the simulation to predict: real time, real Tritons.

  python -m model_build build spellcheck --target cpu
  python -m scripts.record_scaling --out tests/inference_recommender/simulate/recorded_scaling.json

A local account with a server for each instance serves spellcheck on one instance, registers the variant with
Application Auto Scaling, and puts a target tracking policy, all through boto3. Then the load generator sends `TRACE`
with Poisson arrivals to the endpoint by name, from a whole minute on, for 24 minutes: a rise that one instance and then
three cannot serve within the target, and a fall whose fifteenth minute takes the instances away. Meanwhile the count of
instances is read once a second, and that of Triton processes beside it.

The document has the policy, the trace, the time from each change's begin to its end, every change of the counts, and
the service's own activities. `tests/inference_recommender/simulate/test_replay.py` simulates the same trace. The load
takes about a tenth of a core.
"""

import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from aws_api import endpoints
from aws_api.session import AwsSession
from inference_recommender.load_generator.plan import Arrivals, LoadPlan, SageMakerEndpoint
from inference_recommender.load_generator.process import GeneratorProcess, Outcome
from inference_recommender.payloads import payload_archive
from local_aws import machine
from local_aws.process.local_account import LocalAccount
from workloads import ROOT, NoVerdict, Unavailable, load_artifact, load_workload
from workloads.program import exit_code

TRACE = (1.5, *[5.0] * 3, *[8.8] * 3, *[1.5] * 17)
"""Mean requests per second of each minute."""
POLICY = {"TargetValue": 120.0, "ScaleOutCooldown": 90, "ScaleInCooldown": 90}
LEAST, MOST = 1, 4
NAME = "scaled"
BUCKET = "scaled-models"
RESOURCE = f"endpoint/{NAME}/variant/only"
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": RESOURCE,
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
LOST = 0.01
"""Share of the invocations that may be missing in the metrics: those under way at the end."""
LEAD_S = 25.0
"""So long before its first request a generator is started."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the recording, a JSON document")
    parser.add_argument("--minutes", type=int, default=len(TRACE), metavar="N", help=f"default {len(TRACE)}")
    options = parser.parse_args()
    trace = TRACE[: options.minutes]
    with tempfile.TemporaryDirectory(prefix="scaling_") as scratch:
        folder = Path(scratch)
        with LocalAccount.start(state=folder / "account", servers=MOST) as account:
            os.environ.update(account.environment)
            aws = AwsSession()
            deploy(aws)
            document = recorded(aws, account, trace, folder)
            endpoints.delete(aws, NAME)
    check(document)
    options.out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    print(json.dumps({key: document[key] for key in ("start_s", "stop_s", "instances_by_minute", "load_average")}))
    return 0


def check(document: Mapping[str, Any]) -> None:
    """Raises `NoVerdict` where the endpoint had other traffic than the trace's, which would be evidence of nothing."""
    sent, seen = document["sent"], sum(document["invocations_by_minute"])
    if sent["errors"] or sent["unfinished"] or abs(seen - sent["invocations"]) > LOST * sent["invocations"]:
        raise NoVerdict(
            f"The endpoint had {seen:,.0f} invocations within the trace, and the generator sent "
            f"{sent['invocations']:,} with {sent['errors']:,} errors and {sent['unfinished']:,} unfinished. Record "
            "again on a quieter machine."
        )


def deploy(aws: AwsSession) -> None:
    """Creates the endpoint and its policy, and returns when it is in service."""
    artifact = load_artifact(ROOT, "spellcheck", "cpu")
    role = _role(aws)
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    archive = ROOT / "build" / "spellcheck" / "cpu" / artifact.archive
    s3.put_object(Bucket=BUCKET, Key="model.tar.gz", Body=archive.read_bytes())
    endpoints.create(
        aws,
        endpoints.Endpoint(
            name=NAME,
            role_arn=role,
            image_uri="007439368137.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3-cpu",
            model_url=f"s3://{BUCKET}/model.tar.gz",
            environment=artifact.environment,
            instance_type="ml.c5.xlarge",
            startup_s=300,
        ),
    )
    while (status := endpoints.describe(aws, NAME)["EndpointStatus"]) == "Creating":
        time.sleep(0.5)
    if status != "InService":
        raise Unavailable(f"The endpoint is {status}: {endpoints.describe(aws, NAME).get('FailureReason')}")
    scaling = aws.client("application-autoscaling")
    scaling.register_scalable_target(**TARGET, MinCapacity=LEAST, MaxCapacity=MOST)
    metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
    scaling.put_scaling_policy(
        **TARGET,
        PolicyName="InvocationsPerInstance",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={**POLICY, "PredefinedMetricSpecification": metric},
    )


def recorded(aws: AwsSession, account: LocalAccount, trace: Sequence[float], folder: Path) -> dict[str, Any]:
    """Sends the trace from the next whole minute on, and returns the document."""
    begins = math.ceil((time.time() + LEAD_S) / 60) * 60
    print(
        f"the load begins at {datetime.fromtimestamp(begins, UTC):%H:%M:%S}, and takes {len(trace)} minutes", flush=True
    )
    payloads = folder / "payloads.tar.gz"
    payloads.write_bytes(payload_archive(load_workload("spellcheck").payloads()))
    course: list[tuple[float, int, int, int]] = []
    plans = [_plan(rate, first, minutes, begins, payloads) for rate, first, minutes in _phases(trace)]
    outcomes: list[Future[Outcome]] = []
    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(len(plans)))
        while (second := time.time() - begins) < len(trace) * 60:
            for number, plan in enumerate(plans):
                due = plan.start_at is not None and plan.start_at - LEAD_S <= time.time()
                if number == len(outcomes) and due:
                    generator = stack.enter_context(GeneratorProcess.start(plan, folder / f"load-{number}"))
                    outcomes.append(threads.submit(generator.outcome))  # reads what it prints, or it would wait
            counts = _counts(aws, account)
            if second >= 0 and (not course or course[-1][1:] != counts):
                course.append((round(second, 1), *counts))
                print(f"{second:7.1f} s: desired {counts[0]}, in service {counts[1]}, Tritons {counts[2]}", flush=True)
            time.sleep(1.0 - time.time() % 1.0)
        summaries = [each.result().summary or {} for each in outcomes]
    activities = _activities(aws, begins)
    return {
        "machine": machine.description(),
        "load_average": os.getloadavg(),
        "served": "spellcheck, cpu, a Triton for each instance",
        "policy": {**POLICY, "MinCapacity": LEAST, "MaxCapacity": MOST},
        "started_at": datetime.fromtimestamp(begins, UTC).isoformat(),
        "requests_per_second": list(trace),
        "sent": {key: sum(each[key] for each in summaries) for key in ("invocations", "errors", "unfinished")},
        "first_errors": [each["first_error"] for each in summaries if each["first_error"]],
        "invocations_by_minute": _invocations(aws, begins, len(trace)),
        "start_s": _mean_s([each for each in activities if "AlarmHigh" in each["cause"]]),
        "stop_s": _mean_s([each for each in activities if "AlarmLow" in each["cause"]]),
        "course": course,
        "instances_by_minute": [_serving(course, minute * 60.0) for minute in range(len(trace))],
        "activities": activities,
    }


def _activities(aws: AwsSession, begins: float) -> list[dict[str, Any]]:
    """Returns the service's own account of its changes, the earliest first."""
    scaling = aws.client("application-autoscaling")
    told = scaling.describe_scaling_activities(ServiceNamespace="sagemaker")["ScalingActivities"]
    return [
        {
            "second": round(each["StartTime"].timestamp() - begins, 1),
            "took_s": round((each["EndTime"] - each["StartTime"]).total_seconds(), 1) if "EndTime" in each else None,
            "status": each["StatusCode"],
            "description": each["Description"],
            "cause": each["Cause"],
        }
        for each in reversed(told)
    ]


def _mean_s(activities: Sequence[dict[str, Any]]) -> float | None:
    took = [each["took_s"] for each in activities if each["took_s"] is not None]
    return statistics.mean(took) if took else None


def _phases(trace: Sequence[float]) -> list[tuple[float, int, int]]:
    """Returns rate, first minute and minutes of each run of equal rates."""
    phases: list[tuple[float, int, int]] = []
    for minute, rate in enumerate(trace):
        if phases and phases[-1][0] == rate:
            phases[-1] = (rate, phases[-1][1], phases[-1][2] + 1)
        else:
            phases.append((rate, minute, 1))
    return phases


def _plan(rate: float, first: int, minutes: int, begins: float, payloads: Path) -> LoadPlan:
    return LoadPlan(
        endpoint=SageMakerEndpoint(name=NAME),
        payloads=payloads,
        arrivals=Arrivals(
            invocations_per_minute=rate * 60, duration_in_seconds=minutes * 60.0, seed=first, connections=1
        ),
        start_at=begins + first * 60.0,
    )


def _counts(aws: AwsSession, account: LocalAccount) -> tuple[int, int, int]:
    """Returns the desired instances, those in service, and the Triton processes of the account."""
    (variant,) = endpoints.describe(aws, NAME)["ProductionVariants"]
    children = psutil.Process(account.pid).children(recursive=True)
    tritons = sum("tritonserver" in _name(each) for each in children)
    return variant["DesiredInstanceCount"], variant["CurrentInstanceCount"], tritons


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _serving(course: Sequence[tuple[float, int, int, int]], second: float) -> int:
    """Returns the instances in service at a second; before the first that was seen, those of it."""
    seen = [each for each in course if each[0] <= second] or course[:1]
    return seen[-1][2]


def _invocations(aws: AwsSession, begins: float, minutes: int) -> list[float]:
    """Returns what CloudWatch has as the endpoint's invocations of each minute."""
    start = datetime.fromtimestamp(begins, UTC)
    found = aws.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=[{"Name": "EndpointName", "Value": NAME}, {"Name": "VariantName", "Value": "only"}],
        StartTime=start,
        EndTime=datetime.fromtimestamp(begins + minutes * 60, UTC),
        Period=60,
        Statistics=["Sum"],
    )["Datapoints"]
    by_minute = {round((each["Timestamp"] - start).total_seconds() / 60): each["Sum"] for each in found}
    return [by_minute.get(minute, 0.0) for minute in range(minutes)]


def _role(aws: AwsSession) -> str:
    """Makes the role of the model, which may read its archive."""
    iam = aws.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    allowed = {"Effect": "Allow", "Action": ["s3:GetObject", "logs:*", "ecr:*"], "Resource": "*"}
    trusting, allowing = (json.dumps({"Version": "2012-10-17", "Statement": [each]}) for each in (trust, allowed))
    role = iam.create_role(RoleName="scaled-model", AssumeRolePolicyDocument=trusting)["Role"]["Arn"]
    iam.put_role_policy(RoleName="scaled-model", PolicyName="serves", PolicyDocument=allowing)
    return str(role)


if __name__ == "__main__":
    sys.exit(exit_code(main))
