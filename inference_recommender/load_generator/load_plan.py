"""The generator's plan in the shapes of the Inference Recommender API, and when its users and requests come. Pure.

Closed loop: a phase starts with its InitialNumberOfUsers and gains a user every 60 / SpawnRate seconds. A staircase has
k · UsersPerStep users during its k-th step. Open loop: an arrival process of a constant mean rate from a seed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_pascal

from inference_recommender.capacity import arrivals as processes
from inference_recommender.capacity.statistics import Floats
from inference_recommender.load_generator.time_stamps import read_recording, read_stamps
from workloads import POISSON, ArrivalProcess
from workloads.document import Document
from workloads.objective import Percentile

REQUEST_TIMEOUT_S = 60.0
"""Seconds that SageMaker gives a model to answer an invocation."""
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
        if [name for name, value in (("PHASES", self.phases), ("STAIRS", self.stairs)) if value] != [self.traffic_type]:
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
    """Open loop: requests arrive as a process of a mean rate, whatever the answers do."""

    invocations_per_minute: Annotated[float, Field(gt=0)]
    duration_in_seconds: Annotated[float, Field(gt=0)]
    process: ArrivalProcess = Field(default=POISSON, description="The path of `file` is absolute.")
    seed: int = 0
    connections: Annotated[int, Field(ge=1, description="Maximum of open requests. Further ones wait.")] = 256

    def cut(self, seconds: float | None) -> Self:
        """Returns the arrivals of the first `seconds`."""
        duration_s = self.duration_in_seconds
        return self.model_copy(update={"duration_in_seconds": min(duration_s, seconds or duration_s)})


class NamedEndpoint(Document):
    """An endpoint by name: requests to it are signed with the credentials that boto3 finds."""

    name: Annotated[str, Field(min_length=1)]
    region: str | None = Field(default=None, description="Default: boto3's.")


class Share(Document):
    """The part of a common plan that one of several generators does: every `of`-th user or arrival."""

    index: Annotated[int, Field(ge=0)]
    of: Annotated[int, Field(ge=1)]

    def count(self, of_all: int) -> int:
        """Returns how many of `of_all` users or connections, assigned in turn, are this generator's."""
        return max(of_all - self.index + self.of - 1, 0) // self.of


class LoadPlan(Document):
    """One run: its target, payloads, traffic and stopping conditions."""

    url: Annotated[str | None, Field(pattern=r"^(https?://[^/]+|http\+unix://%2[Ff][^/]*)/.*$")] = None
    """http, https, or http+unix with the percent-encoded path of a Unix socket."""
    endpoint: NamedEndpoint | None = None
    headers: dict[str, str] = {}
    payloads: Path = Field(description="A tar.gz of request bodies, one file each.")
    content_type: str = "application/json"
    traffic_pattern: TrafficPattern | None = None
    arrivals: Arrivals | None = None
    share: Share = Share(index=0, of=1)
    start_at: float | None = None
    """Seconds since the epoch, so that several start together; None: at once."""
    stopping_conditions: StoppingConditions = StoppingConditions()
    job_duration_s: Annotated[float | None, Field(gt=0, description="Cuts the traffic.")] = None
    request_timeout_s: Annotated[float, Field(ge=0.1, le=3600.0)] = REQUEST_TIMEOUT_S
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
        for name, value in {"Content-Type": self.content_type, **self.headers}.items():
            if not TOKEN.fullmatch(name):
                raise ValueError(f"got the header name {name!r}. Allowed: letters, digits and hyphens.")
            if name.lower() in FRAMING:
                raise ValueError(f"got the header {name}, which the generator sets itself.")
            if not value.isprintable():
                raise ValueError(f"header {name}: has a character that none may have, such as a line break.")
        if self.url is not None:
            if not self.url.isprintable() or " " in self.url:
                raise ValueError(f"url: got {self.url!r}, with a character that no URL may have.")
            if not self.url.startswith("http+unix:"):
                urlsplit(self.url).port  # noqa: B018  raises a ValueError that names the fault
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """The number of users over a whole run, in seconds since its start."""

    changes: tuple[tuple[float, int], ...]
    """(second, users from then on), ascending."""
    end_s: float

    def users_at(self, second: float) -> int:
        """Returns the number of users at `second`; 0 from the end on."""
        if second >= self.end_s:
            return 0
        return next((users for at_s, users in reversed(self.changes) if at_s <= second), 0)


def schedule(pattern: TrafficPattern, longest_s: float | None = None) -> Schedule:
    """Returns the schedule of `pattern`, cut at `longest_s` seconds."""
    changes: list[tuple[float, int]] = []
    end_s = 0.0
    if pattern.stairs is not None:
        stairs, end_s = pattern.stairs, float(pattern.stairs.duration_in_seconds)
        step_s = end_s / stairs.number_of_steps
        changes = [(step * step_s, (step + 1) * stairs.users_per_step) for step in range(stairs.number_of_steps)]
    for phase in pattern.phases:
        changes += [(end_s + offset, users) for offset, users in _ramp(phase)]
        end_s += phase.duration_in_seconds
    end_s = min(end_s, longest_s or end_s)
    return Schedule(changes=tuple(change for change in changes if change[0] < end_s), end_s=end_s)


def _ramp(phase: Phase) -> Iterator[tuple[float, int]]:
    """Yields (seconds since the phase began, users) for each change within the phase."""
    yield 0.0, phase.initial_number_of_users
    spawned = 1
    while phase.spawn_rate and (offset := spawned * 60 / phase.spawn_rate) < phase.duration_in_seconds:
        yield offset, phase.initial_number_of_users + spawned
        spawned += 1


def arrival_times(arrivals: Arrivals) -> Floats:
    """Returns the moments of arrival in seconds since the start of the run, ascending. Raises `UsageError` if recorded
    arrivals cannot be read or are too short.
    """
    process, random = arrivals.process, np.random.default_rng(arrivals.seed)
    stamps_s = read_stamps(Path(process.file)) if process.file else None
    rate_per_s = arrivals.invocations_per_minute / 60
    return processes.arrival_times(process, rate_per_s, arrivals.duration_in_seconds, random, stamps_s)


def payload_numbers(arrivals: Arrivals, sizes: Sequence[int]) -> list[int] | None:
    """Returns for each arrival the payload of the nearest size to the recorded length; None without lengths."""
    process, random = arrivals.process, np.random.default_rng(arrivals.seed)
    stamps_s, lengths = read_recording(Path(process.file)) if process.file else (None, None)
    if stamps_s is None or lengths is None:
        return None
    rate_per_s = arrivals.invocations_per_minute / 60
    times, first = processes.replayed(stamps_s, rate_per_s, arrivals.duration_in_seconds, random)
    order, ascending = np.argsort(sizes), np.sort(sizes)
    middles = (ascending[1:] + ascending[:-1]) / 2
    nearest: list[int] = order[np.searchsorted(middles, lengths[first : first + len(times)])].tolist()
    return nearest
