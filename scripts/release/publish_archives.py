"""`python -m scripts.release.publish_archives ASSEMBLY`: publishes model archives and takes them out of the assembly.

An action of CloudFormation takes an input artifact of 256 MB at most, and archives may be larger. The pipeline's own
publishing step skips an archive that the bucket has, and does not read its file. Exit code 1 if the remaining files are
too large, with their names.
"""

import json
import subprocess
import sys
from pathlib import Path

from workloads import ProjectError
from workloads.program import exit_code

ARCHIVE = ".tar.gz"
MAX_ARTIFACT_BYTES = 256_000_000
"""Source: https://docs.aws.amazon.com/codepipeline/latest/userguide/limits.html"""


class TooLarge(ProjectError):
    exit_code = 1


def main() -> int:
    assembly = Path(sys.argv[1])
    for manifest in sorted(assembly.rglob("*.assets.json")):
        publish(manifest)
    for archive in assembly.rglob(f"*{ARCHIVE}"):
        archive.unlink()
    check_size(assembly)
    return 0


def publish(manifest: Path) -> None:
    """Publishes each archive of a stack with cdk-assets, which skips those that the bucket has."""
    files = json.loads(manifest.read_text("utf-8")).get("files", {})
    archives = [asset for asset, file in files.items() if str(file["source"].get("path")).endswith(ARCHIVE)]
    if archives:
        subprocess.run(["cdk-assets", "--path", str(manifest), "--verbose", "publish", *archives], check=True)


def check_size(assembly: Path) -> None:
    """Raises `TooLarge` for an assembly that CloudFormation's actions do not take."""
    sizes = {file: file.stat().st_size for file in assembly.rglob("*") if file.is_file()}
    if (total := sum(sizes.values())) > MAX_ARTIFACT_BYTES:
        largest = sorted(sizes, key=lambda file: -sizes[file])[:3]
        names = ", ".join(f"{file.relative_to(assembly)} ({sizes[file] / 1e6:,.1f} MB)" for file in largest)
        raise TooLarge(
            f"{assembly}: has {total / 1e6:,.1f} MB. CodePipeline passes at most {MAX_ARTIFACT_BYTES / 1e6:,.1f} MB to "
            f"CloudFormation. Nothing was deployed. Make the largest files smaller: {names}."
        )


if __name__ == "__main__":
    sys.exit(exit_code(main))
