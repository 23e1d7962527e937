"""Unpacking a model's archive with `containers.archive_reader` beside `tarfile.extractall`: CPU times in turn, ratio.

Ours also reads to the end of the stream and compares the archive's sha256, and looks at every name; tarfile also sets
times and modes. The archive holds a few large files that compress about as weights do, and many small ones. Both unpack
to memory where the machine has /dev/shm, so that no disk is measured. The last line of stdout is one JSON document.
"""

import argparse
import json
import random
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from side_by_side import machine

from containers import archive_reader
from model_build import archive
from workloads import file_sha256

GOAL = 1.0
MEMORY = Path("/dev/shm")


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        work = Path(folder)
        packed, sha256 = _packed(work, options.megabytes, options.files)

        def ours() -> None:
            with packed.open("rb") as stream:
                archive_reader.unpack(stream, work / "unpacked", sha256)

        def tarfiles() -> None:
            with tarfile.open(packed, "r:gz") as stream:
                stream.extractall(work / "unpacked", filter="data")

        pairs = []
        for number in range(options.rounds):
            order = (ours, tarfiles) if number % 2 else (tarfiles, ours)
            taken = {call.__name__: _cpu_s(call, work / "unpacked") for call in order}
            pairs.append((taken["ours"], taken["tarfiles"]))
            print(f"round {number + 1}: {pairs[-1][0]:.2f} s, tarfile {pairs[-1][1]:.2f} s of CPU", file=sys.stderr)
        archive_bytes = packed.stat().st_size
    ratios = [own / other for own, other in pairs]
    result = {
        "benchmark": "unpack",
        "machine": machine([]),
        "archive_bytes": archive_bytes,
        "files": options.files,
        "cpu_s": {"ours": [own for own, _ in pairs], "tarfile": [other for _, other in pairs]},
        "ratio": statistics.median(ratios),
        "ratio_of_pairs": {"lowest": min(ratios), "highest": max(ratios)},
        "goal": GOAL,
        "goal_met": statistics.median(ratios) <= GOAL,
    }
    print(
        f"{archive_bytes / 1e6:.0f} MB packed, {options.files} small files: {result['ratio']:.2f} of tarfile's CPU "
        f"(pairs {min(ratios):.2f} to {max(ratios):.2f}; goal at most {GOAL})"
    )
    print(json.dumps(result))
    return 0


def _packed(work: Path, megabytes: int, files: int) -> tuple[Path, str]:
    """Returns an archive, and its sha256."""
    chance = random.Random(1)
    tree = work / "tree"
    (tree / "small").mkdir(parents=True)
    for number in range(4):
        with (tree / f"weights-{number}.bin").open("wb") as file:
            for _ in range(megabytes * 1_000_000 // 4 // 8192):
                file.write(chance.randbytes(4096) + bytes(2048) + b"abcdefgh" * 256)
    for number in range(files):
        (tree / "small" / f"{number}.txt").write_bytes(chance.randbytes(500))
    packed = work / "model.tar.gz"
    archive.pack(tree, packed)
    shutil.rmtree(tree)
    return packed, file_sha256(packed)


def _cpu_s(call: Callable[[], None], made: Path) -> float:
    start = time.process_time()
    call()
    taken = time.process_time() - start
    shutil.rmtree(made)
    return taken


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Unpacking with our own reader of archives beside tarfile.")
    parser.add_argument("--rounds", type=int, default=9, help="default 9")
    parser.add_argument("--megabytes", type=int, default=250, help="of large files, unpacked; default 250")
    parser.add_argument("--files", type=int, default=1000, help="small files; default 1000")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
