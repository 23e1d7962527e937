"""The `docker` commands of scripts/release/build_image.sh on a machine without Docker.

    build   checks that FROM is given a digest and that the role may read the base; packs the context as one layer
    run     does nothing
    push    uploads the layer and puts the image with the ECR calls that Docker's push makes
    login   checks that there is a password

tests/workloads/test_own_images.py checks what the Dockerfiles copy. Standard library only: a step's own Python runs
this, and it reaches ECR with the AWS CLI.
"""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from scripts.rehearsal.stand_ins.notes import LOG, note

BY_DIGEST = re.compile(r"(?:(?P<registry>[\w.:-]+)/)?(?P<repository>[\w./-]+)@(?P<digest>sha256:[0-9a-f]{64})")
BY_TAG = re.compile(r"(?P<registry>[\w.:-]+)/(?P<repository>[\w./-]+):(?P<tag>[\w.-]+)")
ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[\w-]+)\.amazonaws\.com(\.cn)?")
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar"


def refusal(message: str) -> SystemExit:
    """Returns the exception that prints Docker's message and ends the program with 1."""
    return SystemExit(f"docker: {message}")


def main(arguments: Sequence[str]) -> None:
    match arguments:
        case ["login", "--username", "AWS", "--password-stdin", registry]:
            if not sys.stdin.read().strip():
                raise refusal("Error: password is empty")
            note(f"docker login {registry}", "a check that there is a password")
        case ["build", "--platform", "linux/amd64", *options, "--tag", image, "--file", dockerfile, context]:
            variables = dict(each.split("=", 1) for each in options if each != "--build-arg")
            check_base(variables.get("BASE", ""))
            packed = layer(Path(context))
            _layer_file(image).write_bytes(packed)
            note(f"docker build --file {dockerfile} {context}", f"a layer of the context, {len(packed)} bytes")
        case ["run", "--rm", "--interactive", "--entrypoint", program, image, *words]:
            sys.stdin.read()
            note(f"docker run --entrypoint {program} {image.rpartition('/')[2]} {' '.join(words)}", "nothing")
        case ["push", "--quiet", image]:
            digest = push(image, _layer_file(image).read_bytes())
            note(f"docker push {image.rpartition('/')[2]}", f"an uploaded layer and the image {digest}")
        case _:
            raise refusal(f"'docker {' '.join(arguments)}' is not part of the rehearsal.")


def check_base(image: str) -> None:
    """Raises `SystemExit` for a base without a digest, one that the role may not read, or one never pushed."""
    named = BY_DIGEST.fullmatch(image)
    if named is None:
        raise refusal(f"FROM names '{image}', and not an image by its digest.")
    registry = ECR.fullmatch(named["registry"] or "")
    if registry is None:
        return
    words = ["--registry-id", registry["account"], "--repository-name", named["repository"]]
    done = _aws("batch-get-image", *words, "--image-ids", f"imageDigest={named['digest']}", region=registry["region"])
    if "AccessDenied" in done.stderr:
        raise refusal(f"{image} may not be pulled: {done.stderr.strip()}")
    if done.returncode == 0 and not json.loads(done.stdout)["images"]:
        raise refusal(f"failed to resolve source metadata for {image}: not found")


def layer(context: Path) -> bytes:
    """Returns a tar of the context: the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        for file in sorted(file for file in context.rglob("*") if file.is_file() and "__pycache__" not in file.parts):
            content = file.read_bytes()
            member = tarfile.TarInfo(file.relative_to(context).as_posix())
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def push(image: str, packed: bytes) -> str:
    """Puts the image into its registry and returns the digest. Raises `SystemExit` if ECR refuses a call."""
    named = BY_TAG.fullmatch(image)
    registry = ECR.fullmatch(named["registry"]) if named else None
    if named is None or registry is None:
        raise refusal(f"{image} is no tag of a registry of ECR.")
    where = ["--registry-id", registry["account"], "--repository-name", named["repository"]]
    region = registry["region"]
    rootfs = {"type": "layers", "diff_ids": [_digest(packed)]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
    for blob in (packed, config):
        _call("batch-check-layer-availability", *where, "--layer-digests", _digest(blob), region=region)
        upload = ["--upload-id", json.loads(_call("initiate-layer-upload", *where, region=region))["uploadId"]]
        ends = ["--part-first-byte", "0", "--part-last-byte", str(len(blob) - 1)]
        file = _scratch(".part")
        file.write_bytes(blob)
        part = ["--layer-part-blob", f"fileb://{file}"]
        _call("upload-layer-part", *where, *upload, *ends, *part, region=region)
        _call("complete-layer-upload", *where, *upload, "--layer-digests", _digest(blob), region=region)
    layers = [{"mediaType": LAYER, "size": len(packed), "digest": _digest(packed)}]
    described = {"mediaType": CONFIG, "size": len(config), "digest": _digest(config)}
    document = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": layers})
    digest = _digest(document.encode())
    file = _scratch(".manifest")
    file.write_text(document, "utf-8")
    words = ["--image-tag", named["tag"], "--image-digest", digest, "--image-manifest", f"file://{file}"]
    _call("put-image", *where, *words, region=region)
    return digest


def _call(operation: str, *words: str, region: str) -> str:
    done = _aws(operation, *words, region=region)
    if done.returncode:
        raise refusal(f"denied: {done.stderr.strip()}")
    return done.stdout


def _aws(operation: str, *words: str, region: str) -> "subprocess.CompletedProcess[str]":
    command = ["aws", "ecr", operation, "--region", region, "--output", "json", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _layer_file(image: str) -> Path:
    return _scratch(hashlib.sha256(image.encode()).hexdigest())


def _scratch(name: str) -> Path:
    """Returns a file beside the stand-ins' log, which outlasts this command."""
    folder = Path(os.environ[LOG]).with_name("docker")
    folder.mkdir(exist_ok=True)
    return folder / name
