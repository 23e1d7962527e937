"""Does what `docker` does for scripts/release/build_image.sh, as far as a machine without Docker can: see `docker`.

    build   reads the Dockerfile: FROM must name an image by its digest, and what COPY names must be in the context and
            not be ignored. What is copied becomes the image's one layer, so the digest changes with it
    run     compiles the layer's Python; the program that was asked for is not run
    push    uploads the layer and puts the image, by the calls and so by the grants that Docker's push takes
    login   looks whether there is a password

Instructions other than FROM, ARG and COPY change nothing here, and what a base image holds is not known. Standard
library alone: a step's own Python runs it, and reaches ECR with the AWS CLI.
"""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from scripts.rehearsal.stand_ins.notes import LOG, note

BY_DIGEST = re.compile(r"(?:(?P<registry>[\w.:-]+)/)?(?P<repository>[\w./-]+)@(?P<digest>sha256:[0-9a-f]{64})")
BY_TAG = re.compile(r"(?P<registry>[\w.:-]+)/(?P<repository>[\w./-]+):(?P<tag>[\w.-]+)")
ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[\w-]+)\.amazonaws\.com(\.cn)?")
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar"


class Failed(Exception):
    """A fault for which Docker would end with exit code 1."""


def build(dockerfile: Path, context: Path, given: Mapping[str, str]) -> bytes:
    """Returns the image's layer. Raises `Failed`."""
    known: dict[str, str] = {}
    files: dict[str, Path] = {}
    ignored = ignore_patterns(context)
    for word, rest in instructions(dockerfile):
        filled = re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found[1], ""), rest)
        if word == "ARG":
            name, _, default = rest.partition("=")
            known[name] = given.get(name, default)
        elif word == "FROM":
            pull(filled.split()[0] if filled else "", dockerfile)
        elif word == "COPY":
            *sources, target = filled.split()
            for source in sources:
                files |= copied(context, source, target, ignored, several=len(sources) > 1)
    return layer(files)


def instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    """Yields each instruction's word and the rest of its line, continued lines joined."""
    lines = [line for line in dockerfile.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word:
            yield word.upper(), rest.strip()


def pull(image: str, dockerfile: Path) -> None:
    """Looks for the base. Raises `Failed` where it has no digest, may not be read, or is ours and was never pushed."""
    named = BY_DIGEST.fullmatch(image)
    if named is None:
        raise Failed(f"{dockerfile}: FROM names '{image}', and not an image by its digest.")
    registry = ECR.fullmatch(named["registry"] or "")
    if registry is None:
        return
    words = ["--registry-id", registry["account"], "--repository-name", named["repository"]]
    done = ecr("batch-get-image", *words, "--image-ids", f"imageDigest={named['digest']}", region=registry["region"])
    if "AccessDenied" in done.stderr:
        raise Failed(f"{image} may not be pulled: {done.stderr.strip()}")
    if done.returncode == 0 and not json.loads(done.stdout)["images"]:
        raise Failed(f"failed to resolve source metadata for {image}: not found")


def copied(context: Path, source: str, target: str, ignored: Sequence[str], *, several: bool) -> dict[str, Path]:
    """Returns place in the image → file for one source of COPY. Raises `Failed` where nothing is there."""
    if source.startswith("--"):
        raise Failed(f"COPY {source} is not known here.")
    found: dict[str, Path] = {}
    for path in sorted(context.glob(source)):
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in inside:
            name = file.relative_to(context).as_posix()
            if not file.is_file() or is_ignored(name, ignored):
                continue
            within = file.relative_to(path).as_posix() if path.is_dir() else path.name
            into = several or path.is_dir() or target.endswith("/")
            found[f"{target.rstrip('/')}/{within}" if into else target] = file
    if not found:
        raise Failed(f'failed to compute cache key: "/{source}": not found in {context}, or ignored')
    return found


def ignore_patterns(context: Path) -> list[str]:
    file = context / ".dockerignore"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if unknown := [each for each in patterns if each.startswith("!")]:
        raise Failed(f"{file}: exceptions are not known here: {', '.join(unknown)}")
    return patterns


def is_ignored(name: str, patterns: Sequence[str]) -> bool:
    """Tells whether a file or a folder that it lies in matches; `**/` stands for any folders, or none."""
    parts = name.split("/")
    paths = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    return any(
        fnmatchcase(path.rpartition("/")[2] if pattern.startswith("**/") else path, pattern.removeprefix("**/"))
        for pattern in patterns
        for path in paths
    )


def layer(files: Mapping[str, Path]) -> bytes:
    """Returns the same bytes for the same files, whenever and by whom they were written."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        for place in sorted(files):
            content = files[place].read_bytes()
            member = tarfile.TarInfo(place.lstrip("/"))
            member.size, member.mode = len(content), 0o644
            packed.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def manifest(packed: bytes, labels: Mapping[str, str]) -> tuple[bytes, str]:
    """Returns the image's configuration and its manifest, whose sha256 is the image's digest."""
    diff = digest_of(packed)
    settings = {"architecture": "amd64", "os": "linux", "config": {"Labels": dict(labels)}}
    config = json.dumps({**settings, "rootfs": {"type": "layers", "diff_ids": [diff]}}).encode()
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": len(config),
            "digest": digest_of(config),
        },
        "layers": [{"mediaType": LAYER, "size": len(packed), "digest": diff}],
    }
    return config, json.dumps(document)


def compile_all(packed: bytes) -> int:
    """Compiles the Python of a layer, and returns how many files there were. Raises `Failed`."""
    count = 0
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive.getmembers():
            if member.name.endswith(".py") and (stream := archive.extractfile(member)) is not None:
                try:
                    compile(stream.read(), member.name, "exec")
                except SyntaxError as error:
                    raise Failed(f"/{member.name}: {error}") from error
                count += 1
    return count


def push(image: str, packed: bytes, labels: Mapping[str, str]) -> str:
    """Puts the image into its registry and returns the digest. Raises `Failed` where the account refuses a call."""
    named = BY_TAG.fullmatch(image)
    registry = ECR.fullmatch(named["registry"]) if named else None
    if named is None or registry is None:
        raise Failed(f"{image} is no tag of a registry of ECR.")
    where = ["--registry-id", registry["account"], "--repository-name", named["repository"]]
    config, document = manifest(packed, labels)
    region = registry["region"]
    for blob in (packed, config):
        _done(ecr("batch-check-layer-availability", *where, "--layer-digests", digest_of(blob), region=region))
        begun = _done(ecr("initiate-layer-upload", *where, region=region))
        upload = ["--upload-id", json.loads(begun)["uploadId"]]
        ends = ["--part-first-byte", "0", "--part-last-byte", str(len(blob) - 1)]
        file = _kept(".part")
        file.write_bytes(blob)
        part = ["--layer-part-blob", f"fileb://{file}"]
        _done(ecr("upload-layer-part", *where, *upload, *ends, *part, region=region))
        _done(ecr("complete-layer-upload", *where, *upload, "--layer-digests", digest_of(blob), region=region))
    digest = digest_of(document.encode())
    file = _kept(".manifest")
    file.write_text(document, "utf-8")
    words = ["--image-tag", named["tag"], "--image-digest", digest, "--image-manifest", f"file://{file}"]
    _done(ecr("put-image", *where, *words, region=region))
    return digest


def ecr(operation: str, *words: str, region: str) -> "subprocess.CompletedProcess[str]":
    command = ["aws", "ecr", operation, "--region", region, "--output", "json", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _done(done: "subprocess.CompletedProcess[str]") -> str:
    if done.returncode:
        raise Failed(f"denied: {done.stderr.strip()}")
    return done.stdout


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _kept(name: str) -> Path:
    """Returns a file that outlasts this call; what was built is kept beside the log of the stand-ins."""
    folder = Path(os.environ[LOG]).with_name("docker")
    folder.mkdir(exist_ok=True)
    return folder / name


def _layer_file(image: str) -> Path:
    return _kept(hashlib.sha256(image.encode()).hexdigest())


def _built(image: str) -> bytes:
    file = _layer_file(image)
    if not file.exists():
        raise Failed(f"Unable to find image '{image}' locally")
    return file.read_bytes()


def main(arguments: Sequence[str]) -> int:
    try:
        return _run(arguments)
    except Failed as error:
        print(f"docker: {error}", file=sys.stderr)
        return 1


def _run(arguments: Sequence[str]) -> int:
    match arguments:
        case ["login", "--username", "AWS", "--password-stdin", registry]:
            if not sys.stdin.read().strip():
                raise Failed("Error: password is empty")
            note(f"docker login {registry}", "nothing; the password was there")
        case ["build", "--platform", "linux/amd64", *options, "--tag", image, "--file", dockerfile, context]:
            words = [each for each in options if each != "--build-arg"]
            packed = build(Path(dockerfile), Path(context), dict(each.split("=", 1) for each in words))
            _layer_file(image).write_bytes(packed)
            note(
                f"docker build --file {dockerfile} {context}",
                f"its context and its base's digest were checked; a layer of what it copies, {len(packed)} bytes",
            )
        case ["run", "--rm", "--interactive", "--entrypoint", program, image, *words]:
            sys.stdin.read()
            count = compile_all(_built(image))
            note(
                f"docker run --entrypoint {program} {image.rpartition('/')[2]} {' '.join(words)}",
                f"not run; the {count} Python files of the layer were compiled",
            )
        case ["push", "--quiet", image]:
            digest = push(image, _built(image), {"image": image.rpartition(":")[2]})
            note(f"docker push {image.rpartition('/')[2]}", f"the layer was uploaded and the image put as {digest}")
        case _:
            raise Failed(f"'docker {' '.join(arguments)}' is not among the commands that the rehearsal knows.")
    return 0
