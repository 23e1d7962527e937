"""`python -m scripts.rehearsal.account`: a local account with stand-ins for machines that are not here.

It is `python -m local_aws`, its arguments and its exports, and besides
- the Neuron server of containers/neuron answers for instance types with Inferentia chips, over graphs of the stand-in
  for Neuron's compiler, which run on the CPU. Inference Recommender jobs measure that, and say so;
- processing jobs run as processes of this machine, with their role's credentials;
- a model's image of the account's own registry has to be in its ECR.

What was replaced is listed in `stand_ins.log` of the state folder, or in the file that $STAND_INS_LOG names.
"""

import os
import sys
import tempfile
from pathlib import Path

from local_aws.__main__ import main, parser
from local_aws.process.neuron import NeuronStandIn
from local_aws.sagemaker.processing_jobs import Runner
from scripts.rehearsal.release.machine import ONE_THREAD
from scripts.rehearsal.stand_ins import processing_job
from scripts.rehearsal.stand_ins.neuron import write_package
from scripts.rehearsal.stand_ins.notes import LOG, note
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
        note=note,
    )


def serve() -> int:
    state = parser().parse_args().state.resolve()
    notes = os.environ.setdefault(LOG, str(state / "stand_ins.log"))
    with tempfile.TemporaryDirectory(prefix="rehearsal_account_") as scratch:
        runner = Runner(command=[sys.executable, processing_job.__file__], environment={LOG: notes, **ONE_THREAD})
        return main(neuron=neuron_stand_in(Path(scratch)), processing=runner, images_must_exist=True)


if __name__ == "__main__":
    sys.exit(exit_code(serve))
