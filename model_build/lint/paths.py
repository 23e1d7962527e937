"""Finds members that should not be in an archive at all, wherever they are. Pure.

The checks find names that leave the archive, links, above all those that point out of it, devices, names that break on
the way, the litter of macOS and Jupyter, and pickles, which are programs.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Sequence

from model_build.lint.contents import Contents, Member, join, link_target, normalised
from model_build.lint.finding import Finding, listing

LITTER = ("__MACOSX", ".ipynb_checkpoints")
# Control characters, a backslash (Windows wrote the archive) and what is no UTF-8.
ODD = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
PICKLE_SUFFIXES = (".pkl", ".pickle", ".joblib")
# How torch.save began a file before it wrote zips: its magic number, pickled.
OLD_TORCH_SAVE = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
WHY_LEAVING = (
    "Unpacking writes it outside /opt/ml/model, or refuses it: either way the model is not where Triton looks, and "
    "an archive that writes over other files must not be deployed."
)


def check_paths(contents: Contents, served: Collection[str]) -> list[Finding]:
    """`served` are files that a backend loads and other checks look at."""
    checks: Sequence[Callable[[Contents], list[Finding]]] = (
        _leaving,
        _winding,
        _links,
        _dangling,
        _devices,
        _odd,
        _litter,
    )
    return [finding for check in checks for finding in check(contents)] + _pickles(contents, served)


def is_litter(path: str) -> bool:
    return any(part in LITTER or part.startswith("._") for part in path.split("/"))


def is_pickle(path: str, member: Member) -> bool:
    """True for a pickle by its name, or what torch.save wrote: a zip with data.pkl and without TorchScript's code."""
    if path.endswith(PICKLE_SUFFIXES) or member.head.startswith(OLD_TORCH_SAVE):
        return True
    names = member.zip_names or ()
    return any(name.endswith("/data.pkl") for name in names) and not is_torchscript(member)


def is_torchscript(member: Member) -> bool:
    return any("/code/" in name for name in member.zip_names or ())


def _leaving(contents: Contents) -> list[Finding]:
    outside = [member.name for member in contents.members if normalised(member.name) is None]
    links = [path for path, member in contents.tree.items() if _is_link(member) and link_target(path, member) is None]
    findings = []
    if outside:
        findings.append(
            Finding(
                code="escaping-member",
                severity="error",
                what=f"Names that leave the archive: {listing(outside)}.",
                file=outside[0],
                why=WHY_LEAVING,
                fix="Pack with paths relative to the model repository: `tar -C REPOSITORY -czf model.tar.gz .`",
            )
        )
    if links:
        target = contents.tree[links[0]].target
        findings.append(
            Finding(
                code="escaping-member",
                severity="error",
                what=f"Links that point out of the archive: {listing(links)} (the first to '{target}').",
                file=links[0],
                why=WHY_LEAVING,
                fix="Pack the files themselves: `tar --dereference`.",
            )
        )
    return findings


def _winding(contents: Contents) -> list[Finding]:
    """Finds what is reached through a link: the text of its path does not tell where it leads, and CVE-2025-4517 led
    out of a folder that way.
    """
    paths = [
        path
        for path, member in contents.tree.items()
        if _through_link(path, contents)
        or (member.kind == "symlink" and _through_link(join(posixpath.dirname(path), member.target), contents))
    ]
    if not paths:
        return []
    return [
        Finding(
            code="escaping-member",
            severity="error",
            what=f"Reached through links, so that they may lead out of the archive: {listing(paths)}.",
            file=paths[0],
            why=WHY_LEAVING,
            fix="Pack the files themselves: `tar --dereference`.",
        )
    ]


def _through_link(path: str, contents: Contents) -> bool:
    """Tells whether a folder of `path`, which may have .. in it, is a link."""
    parents = posixpath.dirname(path).split("/")
    folders = (normalised("/".join(parents[: end + 1])) for end in range(len(parents)))
    return any(
        (member := contents.tree.get(folder or "")) is not None and member.kind == "symlink" for folder in folders
    )


def _links(contents: Contents) -> list[Finding]:
    links = [
        path
        for path, member in contents.tree.items()
        if _is_link(member) and (target := link_target(path, member)) is not None and contents.exists(target)
    ]
    if not links:
        return []
    return [
        Finding(
            code="link-member",
            severity="warning",
            what=f"Links inside of the archive: {listing(links)}.",
            file=links[0],
            why="SageMaker unpacks them; the tasks on ECS, the batch and the account on this machine refuse an archive "
            "that holds any, because no name in it may lead elsewhere.",
            fix="Pack the files themselves: `tar --dereference`.",
        )
    ]


def _is_link(member: Member) -> bool:
    return member.kind in ("symlink", "hardlink")


def _dangling(contents: Contents) -> list[Finding]:
    links = [
        path
        for path, member in contents.tree.items()
        if _is_link(member) and (target := link_target(path, member)) is not None and not contents.exists(target)
    ]
    if not links:
        return []
    return [
        Finding(
            code="dangling-link",
            severity="error",
            what=f"Links to nothing: {listing(links)} (the first to '{contents.tree[links[0]].target}').",
            file=links[0],
            why="The file is not there once the archive is unpacked.",
            fix="Pack the files themselves: `tar --dereference`.",
        )
    ]


def _devices(contents: Contents) -> list[Finding]:
    devices = [path for path, member in contents.tree.items() if member.kind == "device"]
    if not devices:
        return []
    return [
        Finding(
            code="device-member",
            severity="error",
            what=f"Devices, pipes or sockets: {listing(devices)}.",
            file=devices[0],
            why="A model archive holds files and folders; unpacking a device is refused, or hangs whoever reads it.",
            fix="Leave it out.",
        )
    ]


def _odd(contents: Contents) -> list[Finding]:
    odd = [path for path in contents.tree if ODD.search(path)]
    if not odd:
        return []
    return [
        Finding(
            code="odd-path",
            severity="warning",
            what=f"Names with control characters, backslashes or bytes that are no UTF-8: {listing(_printable(odd))}.",
            file=_printable(odd)[0],
            why="On Linux a backslash is part of a name and parts no folders; the others break logs, scripts and S3.",
            fix="Rename them; pack on Linux or with forward slashes.",
        )
    ]


def _printable(paths: Sequence[str]) -> list[str]:
    return [path.encode("unicode_escape", "surrogatepass").decode().replace("\\\\", "\\") for path in paths]


def _litter(contents: Contents) -> list[Finding]:
    litter = [path for path in contents.tree if is_litter(path)]
    if not litter:
        return []
    model_folders = [name for name in contents.folders("") if is_litter(name)]
    takes = (
        f"The container counts every top-level folder as a model, '{model_folders[0]}' too: it then finds more than "
        "one and does not start, unless SAGEMAKER_TRITON_DEFAULT_MODEL_NAME is set."
        if model_folders
        else "It is no part of the model, and is copied and unpacked with every instance that starts."
    )
    return [
        Finding(
            code="litter",
            severity="warning",
            what=f"Litter of macOS or Jupyter: {listing(litter)}.",
            file=(model_folders or litter)[0],
            why=takes,
            fix="Pack with `COPYFILE_DISABLE=1 tar --exclude='._*' --exclude=__MACOSX --exclude=.ipynb_checkpoints`.",
        )
    ]


def _pickles(contents: Contents, served: Collection[str]) -> list[Finding]:
    pickles = [
        path
        for path, member in contents.tree.items()
        if member.kind == "file" and path not in served and not is_litter(path) and is_pickle(path, member)
    ]
    if not pickles:
        return []
    return [
        Finding(
            code="pickle",
            severity="warning",
            what=f"Pickles: {listing(pickles)}.",
            file=pickles[0],
            why="Loading a pickle runs whatever program its author put into it, with the endpoint's role; and it loads "
            "only where the same classes can be imported.",
            fix="Store weights as safetensors, ONNX or TorchScript, and tables as JSON.",
        )
    ]
