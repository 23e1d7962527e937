"""The endpoint configurations that a job tests, and how many are dealt out over several jobs. Pure."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_TESTS = 10
"""Of one job: endpoint configurations, and the tests that environment parameters make of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """An instance type, tested with every combination of the environment parameters' values."""

    instance_type: str
    environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def tests(self) -> int:
        return math.prod(len(values) for values in self.environment.values())

    def request(self) -> dict[str, Any]:
        """EndpointInputConfiguration of the API."""
        ranges = [{"Name": name, "Value": list(values)} for name, values in self.environment.items()]
        chosen = {"EnvironmentParameterRanges": {"CategoricalParameterRanges": ranges}} if ranges else {}
        return {"InstanceType": self.instance_type, **chosen}

    def split(self) -> "Iterator[Configuration]":
        """One configuration for each combination, in the order of the values."""
        for values in itertools.product(*self.environment.values()):
            chosen = {name: (value,) for name, value in zip(self.environment, values, strict=True)}
            yield Configuration(instance_type=self.instance_type, environment=chosen)


def dealt(configurations: Sequence[Configuration]) -> list[list[Configuration]]:
    """The configurations of each job, in order. One with more tests than a job may have is split."""
    jobs: list[list[Configuration]] = [[]]
    for one in configurations:
        for part in [one] if one.tests <= MOST_TESTS else one.split():
            if sum(other.tests for other in jobs[-1]) + part.tests > MOST_TESTS:
                jobs.append([])
            jobs[-1].append(part)
    return jobs
