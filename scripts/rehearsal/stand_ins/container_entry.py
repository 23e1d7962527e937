"""Runs an uploaded `entry.py` as its container would: `container_entry.py SYSTEM ENTRY [ARGUMENT…]`.

SYSTEM stands for the container's root folder, which the programs that we upload take as an argument: so nothing is
mounted. Neuron's packages are replaced by this machine's: its lock has wheels for the Pythons of AWS's images, and
without a container there is neither. Every other installation is the program's own, from the package index.

It runs as a script, without any package of ours but what lies beside ENTRY.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    system, script, *arguments = sys.argv[1:]
    sys.path[0] = str(Path(script).parent)
    entry = loaded(Path(script))
    if not arguments:
        return int(entry.main(Path(system)))
    if os.environ.get("PYTHONPATH"):
        make = [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages"]
        entry.install_commands = lambda work, runtime, cuda: [[*make, f"{work}/.venv"]]
    return int(entry.main(arguments, Path(system)))


def loaded(script: Path) -> Any:
    """Imports the program that was uploaded."""
    found = importlib.util.spec_from_file_location("entry", script)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
