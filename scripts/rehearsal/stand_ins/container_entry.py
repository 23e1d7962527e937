"""Runs an uploaded `entry.py` in place of its container: `container_entry.py SYSTEM ENTRY [ARGUMENT…]`.

SYSTEM is the folder that stands for /. The packages for Neuron and for GPUs are those of PYTHONPATH, because their
locks are for AWS's images; every other installation is the program's own. Runs as a script, without the project's
packages.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    system, script, *arguments = sys.argv[1:]
    sys.path[0] = str(Path(script).parent)
    entry: Any = importlib.import_module(Path(script).stem)
    if not arguments:
        return int(entry.main(Path(system)))
    if os.environ.get("PYTHONPATH"):
        make = [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages"]
        entry.install_commands = lambda work, runtime, cuda: [[*make, f"{work}/.venv"]]
    return int(entry.main(arguments, Path(system)))


if __name__ == "__main__":
    sys.exit(main())
