"""Runs a CodeBuild build inside the VPC of an ECS service: `vpc_build.py codebuild start-build OPTION...`.

The account records the service and starts no task. The build therefore gets another URL: of the server that the task
would run, on the same archive, with the stand-in for Inferentia. StartBuild returns when the build has ended.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from containers import archive_reader
from local_aws.process.neuron import NeuronServer
from scripts.rehearsal.account import neuron_stand_in
from scripts.rehearsal.release.execution import NO_BUILDS
from scripts.rehearsal.stand_ins.notes import note
from stacks.ecs.measuring import COMMANDS
from workloads import ModelArtifact

SHORT = " --traffic production"
"""The rehearsal's traffic of a minute: a search takes five."""
STATE = "vpc-build"


def main(arguments: Sequence[str]) -> int:
    state, aws = Path(os.environ["TMPDIR"]) / STATE, os.environ["REHEARSAL_AWS"]
    if arguments[1] == "batch-get-builds":
        print(f"{state.read_text('utf-8')} the log of this step")
        return 0
    called = subprocess.run([aws, *arguments], capture_output=True, text=True, check=False)
    if NO_BUILDS not in called.stderr:
        sys.stderr.write(called.stderr)
        return called.returncode
    with tempfile.TemporaryDirectory(prefix=f"{STATE}_") as folder:
        status = run(aws, options_of(arguments), Path(folder))
    state.write_text("FAILED" if status else "SUCCEEDED", "utf-8")
    print(f"{STATE}:1")
    return 0


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source-location-override")
    parser.add_argument("--environment-variables-override", nargs="+")
    return parser.parse_known_args(arguments)[0]


def run(aws: str, options: argparse.Namespace, folder: Path) -> int:
    """Returns the exit status of the build, whose output goes to stderr."""
    archive, source = folder / "source.zip", folder / "source"
    place = f"s3://{options.source_location_override}"
    subprocess.run([aws, "s3", "cp", "--only-show-errors", place, str(archive)], check=True)
    shutil.unpack_archive(archive, source)
    variables = dict(variable(text) for text in options.environment_variables_override)
    with served(source / "build" / variables["WORKLOAD"], variables, folder) as server:
        url = server.invocations_url.removesuffix("/invocations")
        note(f"the service at {variables['URL']}", f"its server on this machine, at {url}")
        commands = [command + SHORT if "measure_url.sh" in command else command for command in COMMANDS]
        return subprocess.run(
            ["/bin/sh", "-ec", "\n".join(commands)],
            cwd=source,
            env={**os.environ, **variables, "URL": url},
            stdout=sys.stderr,
            check=False,
        ).returncode


def variable(text: str) -> tuple[str, str]:
    """Reads "name=NAME,value=VALUE,type=PLAINTEXT"."""
    name, value = text.removeprefix("name=").removesuffix(",type=PLAINTEXT").split(",value=", 1)
    return name, value


def served(build: Path, variables: Mapping[str, str], folder: Path) -> NeuronServer:
    """Starts the server of the one model in `build`."""
    (file,) = build.glob("*/artifact.json")
    artifact = ModelArtifact.from_json(file)
    with file.with_name(artifact.archive).open("rb") as archive:
        archive_reader.unpack(archive, folder / "model", artifact.archive_sha256)
    return NeuronServer.start(
        folder / "model",
        stand_in=neuron_stand_in(folder),
        instance_type=variables["INSTANCE_TYPE"],
        environment=artifact.environment,
        log_file=folder / "server.log",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
