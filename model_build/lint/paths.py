"""Finds members that do not belong in an archive: names and links that leave it, devices, litter and pickles. Pure."""

import posixpath
from collections.abc import Collection, Iterator
from posixpath import join

from model_build.lint.contents import Contents, Member, link_target, normalised
from model_build.lint.finding import Finding, FindingPlace, finding, listing

LITTER = ("__MACOSX", ".ipynb_checkpoints")
PICKLE_SUFFIXES = (".pkl", ".pickle", ".joblib")
# How torch.save began a file before it wrote zips: its magic number, pickled.
OLD_TORCH_SAVE = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def check_paths(contents: Contents, served: Collection[str]) -> Iterator[Finding]:
    """`served` are files that a backend loads, which other checks read."""
    tree = contents.tree
    links = {path: link_target(path, member) for path, member in tree.items() if member.kind in ("symlink", "hardlink")}
    litter = [path for path in tree if is_litter(path)]
    litter_folders = [name for name in contents.folders("") if is_litter(name)]
    paths_of = {
        "escaping-member/name": [member.name for member in contents.members if normalised(member.name) is None],
        "escaping-member/link": [path for path, target in links.items() if target is None],
        "escaping-member/through-link": [path for path in tree if _through_link(path, contents)],
        "link-member": [path for path, target in links.items() if target is not None and contents.exists(target)],
        "dangling-link": [path for path, target in links.items() if target is not None and not contents.exists(target)],
        "device-member": [path for path, member in tree.items() if member.kind == "device"],
        f"litter/{'model' if litter_folders else 'file'}": litter,
        "pickle": [path for path, member in tree.items() if path not in {*served, *litter} and is_pickle(path, member)],
    }
    for rule, paths in paths_of.items():
        if paths:
            first = litter_folders[0] if rule == "litter/model" else paths[0]
            target = tree[first].target if first in tree else ""
            yield finding(rule, FindingPlace(first), paths=listing(paths), target=target, first=first)


def is_litter(path: str) -> bool:
    return any(part in LITTER or part.startswith("._") for part in path.split("/"))


def is_pickle(path: str, member: Member) -> bool:
    """Returns True for a pickle by its name, or for what torch.save wrote: a zip with data.pkl and no code."""
    if member.kind != "file":
        return False
    if path.endswith(PICKLE_SUFFIXES) or member.head.startswith(OLD_TORCH_SAVE):
        return True
    return any(name.endswith("/data.pkl") for name in member.zip_names or ()) and not is_torchscript(member)


def is_torchscript(member: Member) -> bool:
    return any("/code/" in name for name in member.zip_names or ())


def _through_link(path: str, contents: Contents) -> bool:
    """Returns True if a folder of the path, or of its target, is a link: CVE-2025-4517 left the archive that way."""
    member = contents.tree[path]
    places = [path, join(posixpath.dirname(path), member.target)] if member.kind == "symlink" else [path]
    folders = {
        normalised("/".join(parts[:end])) or ""
        for parts in (posixpath.dirname(place).split("/") for place in places)
        for end in range(1, len(parts) + 1)
    }
    return any((folder := contents.tree.get(name)) is not None and folder.kind == "symlink" for name in folders)
