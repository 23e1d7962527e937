"""`python -m scripts.rehearsal.account`: `python -m local_aws`, with stand-ins for hardware.

- The Neuron server answers for Inferentia instance types. Its graphs come from a fake compiler and run on the CPU.
- GPU instance types have a stand-in for TensorRT. A plan's graph runs on the CPU.
- Processing jobs run as processes of this machine, with their role's credentials.
- An image of the account's own registry must exist in ECR.

$STAND_INS_LOG, or stand_ins.log in the state folder, lists the replacements.
"""

import os
import sys
import tempfile
from pathlib import Path

from local_aws.__main__ import main, parser
from local_aws.account_settings import ContainerRunner
from local_aws.process.neuron import NeuronStandIn
from scripts.rehearsal.release.machine import ONE_THREAD
from scripts.rehearsal.stand_ins import gpu, processing_job
from scripts.rehearsal.stand_ins.notes import LOG, note
from tests.fake_neuron import write_fake
from workloads.instances import Hardware
from workloads.program import exit_code

PACKAGES: dict[Hardware, str] = {"Inferentia 1": "torch_neuron", "Inferentia 2": "torch_neuronx"}


def neuron_stand_in(folder: Path) -> NeuronStandIn:
    """Writes the fake compiler of each chip below `folder`."""
    for package in PACKAGES.values():
        write_fake(folder / package, package)
    return NeuronStandIn(
        packages={kind: folder / package for kind, package in PACKAGES.items()},
        told="a stand-in for Inferentia",
        note=note,
    )


def prepare(repository: Path, instance_type: str) -> None:
    if gpu.prepare(repository, instance_type):
        note(f"the GPU of {instance_type}, and TensorRT of its image", gpu.DESCRIPTION)


def serve() -> int:
    state = parser().parse_args().state.resolve()
    log = os.environ.setdefault(LOG, str(state / "stand_ins.log"))
    with tempfile.TemporaryDirectory(prefix="rehearsal_account_") as scratch:
        runner = ContainerRunner(
            command=[sys.executable, processing_job.__file__], environment={LOG: log, **ONE_THREAD}
        )
        tools = gpu.write_tools(Path(scratch) / "tools", "a stand-in for a GPU, 7.5, 0")
        os.environ["PATH"] = f"{tools}:{os.environ['PATH']}"
        neuron = neuron_stand_in(Path(scratch))
        return main(neuron=neuron, prepare=prepare, processing=runner, images_must_exist=True)


if __name__ == "__main__":
    sys.exit(exit_code(serve))
