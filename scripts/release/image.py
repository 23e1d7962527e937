"""`python -m scripts.release.image`: what build_image.sh reads and writes; it is a shell script's and not for people.

plan KIND REGION                                      prints what the image is built from, as assignments for a shell
leave KIND CONTENT REGISTRY REPOSITORY DIGEST         writes build/images/KIND/image.json
uri KIND                                              prints the image that was left, with its digest
pin NAME:TAG DIGEST                                   writes it into containers/base-digests.json
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from workloads import ROOT, UsageError
from workloads.own_images import PINS, BaseDigests, OwnImage, image_build, image_file, load_image
from workloads.program import exit_code


def plan(kind: str, region: str, containers: Path) -> str:
    """Returns assignments for a shell. Raises `UsageError`, and `Unavailable` without sagemaker-core."""
    build = image_build(kind, containers)
    base = build.base_uri(region) if build.base_registries else ""
    values = {
        "content": build.content(),
        "dockerfile": f"containers/{build.dockerfile}",
        "base": base,
        "base_name": build.base if base else "",
        "base_registry": base.partition("/")[0],
        "base_digest": build.base_digest() or "",
        "own_base": "" if base else build.base,
        "arguments": " ".join(f"--build-arg {name}={value}" for name, value in build.arguments.items()),
        "suffix": "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com",
    }
    return "\n".join(f"{name}={shlex.quote(value)}" for name, value in values.items())


def uri(root: Path, kind: str) -> str:
    if (image := load_image(root, kind)) is None:
        raise UsageError(f"{image_file(root, kind)} does not exist: run `bash scripts/release/build_image.sh {kind}`.")
    return image.uri


def pin(containers: Path, base: str, digest: str) -> None:
    file = containers / PINS
    BaseDigests(digests={**BaseDigests.from_json(file).digests, base: digest}).write_json(file)


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    match arguments:
        case "plan", kind, region:
            print(plan(kind, region, root / "containers"))
        case "leave", kind, content, registry, repository, digest:
            image = OwnImage(kind=kind, registry=registry, repository=repository, digest=digest, content=content)
            image.write_json(image_file(root, kind))
            print(f"{kind}: {registry}/{repository}@{digest}", file=sys.stderr)
        case "uri", kind:
            print(uri(root, kind))
        case "pin", base, digest:
            pin(root / "containers", base, digest)
            print(f"{base} is pinned as {digest}: commit containers/{PINS}.", file=sys.stderr)
        case _:
            raise UsageError(f"{' '.join(arguments)}: build_image.sh calls this; see `{__name__}`.")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: main(sys.argv[1:])))
