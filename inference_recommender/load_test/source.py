"""What travels to every instance of the Processing job, as one reproducible archive: the generator's code and the pins.

Hidden files and compiled Python stay here; of `workloads/` only the contract goes.
"""

import gzip
import io
import tarfile
from pathlib import Path

CODE = ("aws_api", "inference_recommender")
PINS = "constraints.txt"


def source_files(root: Path) -> dict[str, Path]:
    """Name in the archive → file."""
    code = [file for name in CODE for file in (root / name).rglob("*") if file.suffix in (".py", ".json")]
    files = [*code, *(root / "workloads").glob("*.py"), *(root / "workloads").glob("*.json"), root / PINS]
    return {file.relative_to(root).as_posix(): file for file in sorted(files)}


def pack_source(root: Path) -> bytes:
    """The same files give the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, file in source_files(root).items():
            content = file.read_bytes()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)
