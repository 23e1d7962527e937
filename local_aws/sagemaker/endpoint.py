"""A SageMaker endpoint with model servers: Creating, then InService or Failed, Updating, Deleting.

Every change runs in a thread, as the service's do. An update starts the new fleet, shifts the traffic to it in steps of
its guardrails, and stops the old one. If the update fails or an alarm of its guardrails is on, the old fleet answers.
Scaling starts or stops servers of the current fleet.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from moto.core.utils import utcnow
from moto.logs.models import logs_backends
from moto.sagemaker.models import FakeEndpoint

from local_aws.permissions.actions import ApiCall
from local_aws.sagemaker.endpoint_fleet import EndpointLog, EndpointVariant, Fleet
from local_aws.sagemaker.guardrails import Guardrails
from local_aws.sagemaker.model_host import ModelHost
from workloads import ProjectError, Unavailable

REASON_CHARACTERS = 1024

INVOCATIONS_URL = "local-aws:invocations-url"
"""Key of the tag with the address of an endpoint's only server, for a load generator. InvokeEndpoint would measure this
process, which answers for every endpoint."""

Resolve = Callable[[Mapping[str, Any]], EndpointVariant]

log = logging.getLogger(__name__)


class LocalEndpoint(FakeEndpoint):
    """One endpoint. `settled` is set if no change is in progress."""

    def __init__(self, host: ModelHost, account_id: str, region_name: str, endpoint_name: str, *more: Any) -> None:
        super().__init__(account_id, region_name, endpoint_name, *more)
        self.endpoint_status = "Creating"
        self.failure_reason: str | None = None  # type: ignore[assignment]  # moto infers None
        self.settled = threading.Event()
        self.update_failed = False
        self.guardrails: Guardrails | None = None
        self._host = host
        self._log = EndpointLog(logs_backends[account_id][region_name], endpoint_name)
        self._fleet: Fleet | None = None
        self._baking: Fleet | None = None
        """The new fleet of a guarded update, which has a share of the traffic."""
        self._share = 0.0
        self._lock = threading.Lock()

    def create(self, resolve: Resolve, production_variants: Sequence[Mapping[str, Any]]) -> None:
        """Starts the fleet in a thread. The status shows the result."""
        self._in_thread(lambda: self._switch(resolve, production_variants))

    def update(  # type: ignore[override]  # moto's BaseObject.update sets attributes from JSON; nothing calls it here
        self, resolve: Resolve, config_name: str, production_variants: list[dict[str, Any]], *, retain: bool
    ) -> None:
        """Replaces the fleet in a thread. `retain` keeps the counts and weights of variants that stay."""
        self._set("Updating")
        self._in_thread(lambda: self._switch(resolve, production_variants, config_name, retain))

    def delete(self, forget: Callable[[], object]) -> None:
        """Stops the fleet in a thread, then calls `forget`."""
        with self._lock:
            fleet, self._fleet = self._fleet, None
        self._set("Deleting")

        def stop() -> None:
            if fleet is not None:
                fleet.stop()
            forget()
            log.info(f"endpoint {self.endpoint_name} is deleted")

        self._in_thread(stop)

    def scale(self, desired: Mapping[str, Mapping[str, Any]]) -> None:
        """Brings variants to the counts and weights of `desired`, by name, in a thread. The status shows the result."""
        self._set("Updating")
        for item in self.production_variants:
            if (count := desired.get(item["VariantName"], {}).get("DesiredInstanceCount")) is not None:
                item["DesiredInstanceCount"] = count
        self._in_thread(lambda: self._scale(desired))

    def pick(self, variant: str | None) -> Any:
        fleet = self._fleet
        return fleet.pick(variant) if fleet is not None else None

    @contextmanager
    def lease(self, variant: str | None) -> Iterator[Any]:
        """Picks a variant and one of its servers, which no change of the fleet stops before the block has ended."""
        picked = None
        with ExitStack() as leases:
            while picked is None and (fleet := self._drawn_fleet()) is not None:
                picked = leases.enter_context(fleet.lease(variant))
                if not fleet.drains:
                    break
            yield picked

    def _drawn_fleet(self) -> Fleet | None:
        fleet, new = self._fleet, self._baking
        return new if new is not None and (fleet is None or random.random() < self._share) else fleet

    def instance_count(self, variant: str) -> int:
        """Returns the instances of a variant that are in service."""
        counts = {item["VariantName"]: item.get("CurrentInstanceCount", 1) for item in self.production_variants}
        return int(counts.get(variant, 1))

    def is_created(self) -> bool:
        return self.settled.is_set()

    @property
    def response_object(self) -> dict[str, Any]:
        response = {
            "EndpointName": self.endpoint_name,
            "EndpointArn": self.arn,
            "EndpointConfigName": self.endpoint_config_name,
            "ProductionVariants": self.production_variants,
            "EndpointStatus": self.endpoint_status,
            "CreationTime": self.creation_time,
            "LastModifiedTime": self.last_modified_time,
        }
        deployed = {"LastDeploymentConfig": dict(self.guardrails.config)} if self.guardrails else {}
        return response | deployed | ({"FailureReason": self.failure_reason} if self.failure_reason else {})

    def _switch(
        self,
        resolve: Resolve,
        production_variants: Sequence[Mapping[str, Any]],
        config_name: str | None = None,
        retain: bool = False,
    ) -> None:
        guardrails = self.guardrails
        fleet = Fleet(self._host, self._log, self._died, config_name or self.endpoint_config_name)
        try:
            log.info(f"endpoint {self.endpoint_name}: starting")
            now = {each["VariantName"]: each.get("DesiredInstanceCount") for each in self.production_variants}
            variants = [resolve(each) for each in production_variants]
            variants = [replace(each, count=(retain and now.get(each.name)) or each.count) for each in variants]
            if guardrails is not None and (roles := self._host.roles) is not None:
                for role_arn in filter(None, (each.container.role_arn for each in variants)):
                    read_alarms = ApiCall("cloudwatch", "DescribeAlarms", {"AlarmNames": list(guardrails.alarms)})
                    roles.require(role_arn, "sagemaker:UpdateEndpoint", [read_alarms])
            fleet.start(self.endpoint_name, variants)
        except Exception as error:  # every error: an endpoint must not stay Creating for ever
            self._failed(error, updating=config_name is not None)
            return
        old = self._fleet
        if guardrails is None or config_name is None:
            guardrails = Guardrails({}, None)
        if not self._takes_over(fleet, guardrails, sum(each.count for each in variants)):
            return
        if config_name is not None:
            retained = {variant["VariantName"]: variant for variant in self.production_variants} if retain else {}
            self.endpoint_config_name = config_name
            new = self._process_production_variants([dict(variant) for variant in production_variants])
            self.production_variants = [variant | retained.get(variant["VariantName"], {}) for variant in new]
        self._announce()
        if old is not None:
            old.drain()

    def _scale(self, desired: Mapping[str, Mapping[str, Any]]) -> None:
        fleet = self._fleet
        counts = {item["VariantName"]: int(item.get("DesiredInstanceCount", 1)) for item in self.production_variants}
        try:
            if fleet is None:
                raise Unavailable(f"Endpoint {self.endpoint_name} has no instance that answers.")
            weights = {name: each["DesiredWeight"] for name, each in desired.items() if "DesiredWeight" in each}
            fleet.scale(self.endpoint_name, {name: counts[name] for name in desired})
            fleet.weigh(weights)
        except Exception as error:  # every error: an endpoint must not stay Updating for ever
            for item in self.production_variants:
                item["DesiredInstanceCount"] = item.get("CurrentInstanceCount", 1)
            self._failed(error, updating=True)
            return
        for item in self.production_variants:
            item["CurrentInstanceCount"] = item.get("DesiredInstanceCount", 1)
            if item["VariantName"] in weights:
                item["DesiredWeight"] = item["CurrentWeight"] = weights[item["VariantName"]]
        self._announce()

    def _takes_over(self, new: Fleet, guardrails: Guardrails, instances: int) -> bool:
        """Shifts the traffic to the new fleet, or back to the old one if the new one does not pass."""
        self._share, self._baking, alarmed = 0.0, new, list[str]()
        for share, bake_s in guardrails.steps(instances):
            log.info(f"endpoint {self.endpoint_name}: the new fleet takes {share:.0%} of the traffic")
            self._share = share
            alarmed = guardrails.watch(bake_s, lambda: self._baking is None)
            if alarmed or self._baking is None:
                break
        with self._lock:
            passed = not alarmed and self._baking is new
            self._fleet, self._baking = new if passed else self._fleet, None
        if passed:
            return True
        died = self.failure_reason
        self._set("RollingBack")
        new.drain()
        # The words are this account's: AWS documents the rollback, and not its FailureReason.
        why = f"{', '.join(alarmed)} {'is' if len(alarmed) == 1 else 'are'} in ALARM." if alarmed else died
        self._failed(Unavailable(f"The update of endpoint {self.endpoint_name} was rolled back: {why}"), updating=True)
        return False

    def _announce(self) -> None:
        self.update_failed = False
        # The tag names a variant's only server. With several servers, one would get the load of all.
        tags = {tag["Key"]: tag["Value"] for tag in self.tags if tag["Key"] != INVOCATIONS_URL}
        picked = self.pick(None)
        if self._fleet is not None and picked is not None and self._fleet.servers(picked[0]) == 1:
            tags[INVOCATIONS_URL] = picked[1].invocations_url
        self.tags = [{"Key": key, "Value": value} for key, value in tags.items()]
        self._set("InService")
        for variant in self.production_variants:
            name = variant["VariantName"]
            servers = self._fleet.servers(name) if self._fleet is not None else 0
            log.info(
                f"endpoint {self.endpoint_name} is InService; {servers} server(s) answer for "
                f"{self.instance_count(name)} instance(s) of variant {name}"
            )

    def _failed(self, error: Exception, *, updating: bool) -> None:
        reason = failure_reason(error)
        log.info(f"endpoint {self.endpoint_name}: {'update' if updating else 'creation'} failed: {reason}")
        # As after a rollback by the service, the old fleet is InService and the reason can still be read.
        self.update_failed = updating
        status = "InService" if updating and self._fleet is not None else "Failed"
        self._set(status, reason)

    def _died(self, fleet: Fleet, reason: str) -> None:
        with self._lock:
            if fleet is self._baking:
                self._set("RollingBack", reason)
                self._baking = None
            elif fleet is self._fleet:
                self._set("Failed" if self._baking is None else self.endpoint_status, reason)
                self._fleet = None
            else:
                return
        log.info(f"endpoint {self.endpoint_name} failed: {reason}")
        fleet.stop()

    def _set(self, status: str, reason: str | None = None) -> None:
        self.failure_reason = shortened(reason)
        self.endpoint_status = status
        self.last_modified_time = utcnow()

    def _in_thread(self, work: Callable[[], None]) -> None:
        self.settled.clear()

        def run() -> None:
            try:
                work()
            finally:
                self.settled.set()

        threading.Thread(target=run, name=f"endpoint-{self.endpoint_name}", daemon=True).start()


def failure_reason(error: Exception) -> str:
    return str(error) if isinstance(error, ProjectError) else f"{type(error).__name__}: {error}"


def shortened(reason: str | None) -> str | None:
    """Cuts a reason to the API's limit. It keeps the beginning and the last log lines."""
    if reason is None or len(reason) <= REASON_CHARACTERS:
        return reason
    head = reason[:400]
    return f"{head}\n…\n{reason[-(REASON_CHARACTERS - len(head) - 3) :]}"
