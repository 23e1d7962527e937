"""What keeps lint from starting at all. A broken archive is not an error here: it is a finding."""

from pathlib import Path

from workloads import ProjectError


class NothingToLint(ProjectError):
    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: there is no such file or folder. "
            "Allowed: a model.tar.gz, or an unpacked Triton model repository (the folder that holds the model folders)."
        )


class UnreadablePayload(ProjectError):
    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(
            f"{file}: cannot be read: {reason}. Allowed: a .jsonl file with one request per line, or a file that is "
            "one request body in KServe v2 JSON."
        )
