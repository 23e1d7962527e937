"""The generator's plan: a JSON document in the shapes of the Inference Recommender API."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_pascal

from workloads import UsageError
from workloads.document import Document
from workloads.objective import Percentile

REQUEST_TIMEOUT_S = 60.0
"""Seconds that SageMaker gives a model to answer an invocation."""


LEAST_TIMEOUT_S, MOST_TIMEOUT_S = 0.1, 3600.0
NOT_KEPT = "(not kept)"
"""The value of every header in a plan that was written down: it may be a password."""
TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""The name of a header (RFC 9110, 5.6.2)."""
FRAMING = ("content-length", "transfer-encoding")
"""Headers that say where a request ends, which the generator does itself."""


class ApiShape(BaseModel):
    """A structure of the API: its member names are in PascalCase there."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_pascal, validate_by_name=True
    )


class Phase(ApiShape):
    initial_number_of_users: Annotated[int, Field(ge=1)]
    spawn_rate: Annotated[int, Field(ge=0, description="New users per minute.")] = 0
    duration_in_seconds: Annotated[int, Field(ge=1)]


class Stairs(ApiShape):
    duration_in_seconds: Annotated[int, Field(ge=1, description="Duration of the whole staircase.")]
    number_of_steps: Annotated[int, Field(ge=1)]
    users_per_step: Annotated[int, Field(ge=1)]


class TrafficPattern(ApiShape):
    """Closed loop: each user sends its next request when its last one returned."""

    traffic_type: Literal["PHASES", "STAIRS"]
    phases: tuple[Phase, ...] = ()
    stairs: Stairs | None = None

    @model_validator(mode="after")
    def _has_its_variant(self) -> Self:
        if (self.traffic_type == "STAIRS") != (self.stairs is not None) or (self.traffic_type == "PHASES") != bool(
            self.phases
        ):
            raise ValueError(f"TrafficType {self.traffic_type} needs {self.traffic_type.title()} and nothing else.")
        return self


class ModelLatencyThreshold(ApiShape):
    percentile: Percentile
    value_in_milliseconds: Annotated[int, Field(ge=1)]

    @property
    def rank(self) -> float:
        """The percentile as a number: 99.0 for P99."""
        return float(self.percentile[1:])


class StoppingConditions(ApiShape):
    max_invocations: int | None = Field(default=None, description="Per minute.")
    model_latency_thresholds: tuple[ModelLatencyThreshold, ...] = Field(default=(), max_length=1)
    flat_invocations: Literal["Stop", "Continue"] = "Stop"

    @property
    def latency(self) -> ModelLatencyThreshold | None:
        """The latency threshold, if there is one."""
        return self.model_latency_thresholds[0] if self.model_latency_thresholds else None

    def of_one_in(self, generators: int) -> Self:
        """Returns the conditions for each of several generators: its part of the invocations, the same latency."""
        most = self.max_invocations
        return self.model_copy(update={"max_invocations": most and -(-most // generators)})


class Arrivals(Document):
    """Open loop: requests arrive as a Poisson process, whatever the answers do."""

    invocations_per_minute: Annotated[float, Field(gt=0)]
    duration_in_seconds: Annotated[float, Field(gt=0)]
    seed: int = 0
    connections: Annotated[int, Field(ge=1, description="Maximum of open requests. Further ones wait.")] = 256


class NamedEndpoint(Document):
    """An endpoint by name: requests to it are signed with the credentials that boto3 finds."""

    name: Annotated[str, Field(min_length=1)]
    region: str | None = Field(default=None, description="Default: boto3's.")
    variant: str | None = Field(default=None, description="Default: the endpoint's own division of traffic.")


class Share(Document):
    """The part of a common plan that one of several generators does: every `of`-th user or arrival."""

    index: Annotated[int, Field(ge=0)]
    of: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if self.index >= self.of:
            raise ValueError(f"index is {self.index}; of {self.of} generators the last has {self.of - 1}.")
        return self

    def count(self, of_all: int) -> int:
        """Returns how many of `of_all` users or connections, assigned in turn, are this generator's."""
        return max(of_all - self.index + self.of - 1, 0) // self.of


class LoadPlan(Document):
    """One run: its target, payloads, traffic and stopping conditions."""

    url: Annotated[
        str | None,
        Field(
            pattern=r"^(https?://[^/]+|http\+unix://%2[Ff][^/]*)/.*$",
            description="http, https, or http+unix with the percent-encoded path of a Unix socket.",
        ),
    ] = None
    endpoint: NamedEndpoint | None = None
    headers: dict[str, str] = {}
    """Sent with every request, beside the content type."""
    ca_file: Path | None = Field(default=None, description="Certificates to trust for https; default: the system's.")
    payloads: Path = Field(description="Folder or tar.gz of request bodies, one file each.")
    content_type: str = "application/json"
    traffic_pattern: TrafficPattern | None = None
    arrivals: Arrivals | None = None
    share: Share = Share(index=0, of=1)
    start_at: float | None = Field(
        default=None, description="Seconds since the epoch, so that several start together; default: at once."
    )
    stopping_conditions: StoppingConditions = StoppingConditions()
    job_duration_s: Annotated[float | None, Field(gt=0, description="Cuts the traffic.")] = None
    request_timeout_s: Annotated[float, Field(ge=LEAST_TIMEOUT_S, le=MOST_TIMEOUT_S)] = REQUEST_TIMEOUT_S
    """A request without its whole answer by then has failed."""
    window_s: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _has_one_target_and_one_kind_of_traffic(self) -> Self:
        if (self.url is None) == (self.endpoint is None):
            raise ValueError("give exactly one of url and endpoint (of SageMaker, by name).")
        if (self.traffic_pattern is None) == (self.arrivals is None):
            raise ValueError("give exactly one of traffic_pattern (closed loop) and arrivals (open loop).")
        return self

    @model_validator(mode="after")
    def _is_one_request_over_the_wire(self) -> Self:
        """A line break in a header or a URL would begin another."""
        if problem := _why_unsendable({"Content-Type": self.content_type, **self.headers}):
            raise ValueError(problem)
        if self.url is not None:
            if not self.url.isprintable() or " " in self.url:
                raise ValueError(f"url: got {self.url!r}, with a character that no URL may have.")
            if not self.url.startswith("http+unix:"):
                urlsplit(self.url).port  # noqa: B018  raises a ValueError that names the fault
        return self

    def without_secrets(self) -> Self:
        """Returns the plan for writing, with the headers' names but not their values."""
        return self.model_copy(update={"headers": dict.fromkeys(self.headers, NOT_KEPT)})

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """Returns the plan with `headers` added, or in the place of those that were not kept.

        Raises `UsageError` where one is still missing, or cannot be sent.
        """
        every = {**self.headers, **headers}
        if missing := [name for name, value in every.items() if value == NOT_KEPT]:
            raise UsageError(
                f"headers.{missing[0]}: its value was not kept with the plan. Give it with --headers FILE, a JSON "
                "object of names and values; - reads it from standard input."
            )
        if problem := _why_unsendable(every):
            raise UsageError(f"--headers: {problem}")
        return self.model_copy(update={"headers": every})

    def with_request_timeout(self, seconds: float | None) -> Self:
        """Returns the plan with the argument of `--request-timeout-s`, if there is one. Raises `UsageError`."""
        if seconds is None:
            return self
        if not LEAST_TIMEOUT_S <= seconds <= MOST_TIMEOUT_S:
            raise UsageError(
                f"--request-timeout-s: got {seconds:g}. Allowed: {LEAST_TIMEOUT_S:g} to {MOST_TIMEOUT_S:g} seconds."
            )
        return self.model_copy(update={"request_timeout_s": seconds})


def _why_unsendable(headers: Mapping[str, str]) -> str | None:
    """Returns the problem of the first of `headers` that HTTP does not allow, or None. Never shows a value."""
    for name, value in headers.items():
        if not TOKEN.fullmatch(name):
            return f"got the header name {name!r}. Allowed: letters, digits and hyphens."
        if name.lower() in FRAMING:
            return f"got the header {name}, which the generator sets itself."
        if not value.isprintable():
            return f"header {name}: has a character that none may have, such as a line break."
    return None
