"""`python -m scripts.rehearsal.account`: a local account with stand-ins for machines that are not here.

It is `python -m local_aws`, its arguments and its exports, and besides
- the Neuron server of containers/neuron answers for instance types with Inferentia chips, over graphs of the stand-in
  for Neuron's compiler, which run on the CPU. Inference Recommender jobs measure that, and say so.
"""

import sys
import tempfile
from pathlib import Path

from local_aws.__main__ import main
from local_aws.process.neuron import NeuronStandIn
from scripts.rehearsal.stand_ins.neuron import write_package
from workloads.instances import Hardware
from workloads.program import exit_code

PACKAGES: dict[Hardware, str] = {"Inferentia 1": "torch_neuron", "Inferentia 2": "torch_neuronx"}


def neuron_stand_in(folder: Path) -> NeuronStandIn:
    """Writes AWS's package for each chip, as this machine has it, below `folder`."""
    for package in PACKAGES.values():
        write_package(folder / package, package)
    return NeuronStandIn(
        packages={kind: folder / package for kind, package in PACKAGES.items()},
        told="a stand-in for Inferentia",
    )


def serve() -> int:
    with tempfile.TemporaryDirectory(prefix="rehearsal_account_") as scratch:
        return main(neuron=neuron_stand_in(Path(scratch)))


if __name__ == "__main__":
    sys.exit(exit_code(serve))
