"""Starts the Neuron server of containers/neuron on a machine where something stands in for the chip.

It runs the container's own `serve`. The package that loads the graphs comes from a `NeuronStandIn`. The server listens
on a loopback port, without a key, because its workers share the port.
"""

import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from local_aws.process.model_server import ModelServer, launch
from workloads import CODE
from workloads.instances import Hardware, hardware, instance_shape

SERVE = CODE / "containers" / "neuron" / "serve"
CORES_PER_CHIP: Mapping[Hardware, int] = {"Inferentia 1": 4, "Inferentia 2": 2}
MOST_CORES = 4
"""A NeuronCore is a thread or a process here, and each loads the model: a larger instance has no more of them."""
START_TIMEOUT_S = 1200.0
"""Long, because a model that is to be recorded answers all its rows first; SageMaker may be told up to an hour."""
GRACE_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class NeuronStandIn:
    """Replaces Inferentia's chips."""

    packages: Mapping[Hardware, Path]
    """The folder on whose path AWS's package for a chip is found, by the chip."""
    told: str
    note: Callable[[str, str], None] = lambda what, by: None

    def serves(self, instance_type: str) -> bool:
        return hardware(instance_type) in self.packages


class NeuronServer(ModelServer):
    """A running Neuron server."""

    KIND = "Neuron"

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        stand_in: NeuronStandIn,
        instance_type: str,
        environment: Mapping[str, str],
        log_file: Path,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> "NeuronServer":
        """Starts the server on the model in `folder`, and returns when it is ready. Raises `Unavailable`."""
        stand_in.note(f"the chips of {instance_type}", f"{stand_in.told}, for the unchanged containers/neuron")
        scratch = Path(tempfile.mkdtemp(prefix="local_aws_neuron_"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        process = launch(
            ["/bin/sh", str(SERVE)],
            cls.KIND,
            log_file,
            environment=container_environment(folder, stand_in, instance_type, port, scratch) | dict(environment),
            remove=[str(scratch)],
            grace_s=GRACE_S,
        )
        server = cls(process, folder, f"http://127.0.0.1:{port}/invocations", ("/ping",), log_file)
        server.wait_until_ready(folder.name, start_timeout_s)
        return server


def container_environment(
    folder: Path, stand_in: NeuronStandIn, instance_type: str, port: int, scratch: Path
) -> dict[str, str]:
    """Returns the whole environment of the server; like a container it inherits nothing from ours."""
    kind, shape = hardware(instance_type), instance_shape(instance_type)
    there = (shape.neuron_chips if shape else 1) * CORES_PER_CHIP[kind]
    return {
        "HOME": str(scratch),
        "HOST": "127.0.0.1",
        "LANG": "C.UTF-8",
        "MODEL_FOLDER": str(folder),
        "NEURON_RT_NUM_CORES": str(min(there, MOST_CORES)),
        # The stand-in's cores are threads of this machine, on which OpenMP's own would spin for one another.
        "OMP_NUM_THREADS": "1",
        # `python` of the image is the one that runs this account: it has torch and the server's packages.
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{stand_in.packages[kind]}:{CODE}",
        "PYTHONUNBUFFERED": "1",
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "TMPDIR": str(scratch),
    }
