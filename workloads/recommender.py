"""`[recommender]` of workload.toml: what a load test may vary besides the instance type."""

from typing import Annotated

from pydantic import Field

from workloads.document import Document

ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
ParameterValue = Annotated[str, Field(max_length=128)]


class Recommender(Document):
    environment: Annotated[
        dict[ParameterName, Annotated[tuple[ParameterValue, ...], Field(min_length=1, max_length=3)]],
        Field(
            max_length=5,
            description="Environment variables of the container, each with one to three values. An advanced job "
            "tests every instance type with every combination of them. None: as it is deployed.",
        ),
    ] = {}
