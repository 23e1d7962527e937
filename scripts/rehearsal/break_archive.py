"""`python -m scripts.rehearsal.break_archive WORKLOAD --target T`: replaces a built model by one that cannot load.

Every model.py of build/WORKLOAD/T/model.tar.gz raises an error in Triton, and artifact.json has the new archive's hash.
Only the endpoint can find out. Works below the working folder.
"""

import argparse
import gzip
import io
import sys
import tarfile
from pathlib import Path

from workloads import ModelArtifact, artifact_file, file_sha256
from workloads.program import exit_code

BROKEN = b'raise RuntimeError("this model is broken, for a rehearsal")\n'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("--target", default="cpu")
    options = parser.parse_args()
    file = artifact_file(Path.cwd(), options.workload, options.target)
    artifact = ModelArtifact.from_json(file)
    archive = file.with_name(artifact.archive)
    archive.write_bytes(broken(archive.read_bytes()))
    changes = {"archive_sha256": file_sha256(archive), "archive_bytes": archive.stat().st_size}
    artifact.model_copy(update=changes).write_json(file)
    print(f"{archive.relative_to(Path.cwd())}: its model fails to load")
    return 0


def broken(archive: bytes) -> bytes:
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as old,
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as new,
    ):
        for member in old.getmembers():
            content = old.extractfile(member)
            data = content.read() if content is not None else b""
            if Path(member.name).name == "model.py":
                data, member.size = BROKEN, len(BROKEN)
            new.addfile(member, io.BytesIO(data) if member.isfile() else None)
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(exit_code(main))
