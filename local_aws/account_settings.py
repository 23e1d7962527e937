"""The settings of an account, which its hosts, jobs and backends share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moto.core.models import DEFAULT_ACCOUNT_ID

from inference_recommender.load_generator.process import COMMAND
from local_aws.process.neuron import NeuronStandIn
from local_aws.quotas import Quotas


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerRunner:
    """The command that runs a job's container here; it gets the path of the request."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountSettings:
    state: Path
    region: str
    toolchain: Path
    most_servers: int = 1
    """Most servers that answer for a variant, however many instances it has: a machine has room for a few."""
    quotas: Quotas = field(default_factory=dict)
    quick: bool = False
    """Whether time may pass faster than on AWS: traffic of jobs beyond the documented limits, and service metrics each
    second."""
    generator: Sequence[str] = COMMAND
    neuron: NeuronStandIn | None = None
    """Replaces Inferentia's chips. Without it, their instance types are rejected."""
    prepare: Callable[[Path, str], None] | None = None
    """Changes an unpacked model, given its folder and instance type, before a Triton serves it."""
    processing: ContainerRunner | None = None
    """Runs the containers of processing jobs. Without it, CreateProcessingJob is rejected."""
    images_must_exist: bool = False
    """Whether a model's image in this account's registry has to exist. Nothing pulls it."""
    account_id: str = DEFAULT_ACCOUNT_ID
