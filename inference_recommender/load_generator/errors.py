"""What the generator may have to tell a person."""

from pathlib import Path

from workloads import ProjectError


class UnreadablePayloads(ProjectError):
    def __init__(self, source: Path, why: str) -> None:
        super().__init__(f"{source}: {why}. Give a folder or a tar.gz of request bodies, one file each.")


class UnreadableCertificates(ProjectError):
    def __init__(self, file: Path | None, why: str) -> None:
        super().__init__(f"{file}: cannot be read as certificates: {why}. Give ca_file a PEM file of those to trust.")


class NothingToMerge(ProjectError):
    """Of several generators, no second in which all were at work."""

    exit_code = 4
