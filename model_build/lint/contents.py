"""The members of an archive or a folder, with the bytes that checks need. Pure.

Paths are relative, with forward slashes and no `./`. The root is "".
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from posixpath import join
from typing import Literal

Kind = Literal["file", "folder", "symlink", "hardlink", "device"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    name: str
    """The name as stored; `Contents` normalises it."""
    kind: Kind
    size: int = 0
    target: str = ""
    """A link's target, relative to its own folder (symlink) or to the root (hardlink)."""
    head: bytes = b""
    """A file's first 64 bytes."""
    text: bytes | None = None
    """The content of a config.pbtxt or a Neuron model's JSON, unless it is too large."""
    zip_names: tuple[str, ...] | None = None
    """The names in a zipped PyTorch file; None for other files or an unreadable directory."""


@dataclass(frozen=True)
class Contents:
    members: tuple[Member, ...]
    unreadable: str | None = None
    """The reason why reading ended early, after these members."""

    @cached_property
    def tree(self) -> Mapping[str, Member]:
        """The members inside the archive, by normalised path; the last of a name wins, as in unpacking."""
        return {path: member for member in self.members if (path := normalised(member.name))}

    @cached_property
    def _children(self) -> Mapping[str, set[str]]:
        children: dict[str, set[str]] = {"": set()}
        for path in self.tree:
            while path:
                parent, name = posixpath.split(path)
                children.setdefault(parent, set()).add(name)
                path = parent
        return children

    def children(self, folder: str) -> list[str]:
        """The names inside a folder, sorted."""
        return sorted(self._children.get(folder, ()))

    def folders(self, folder: str) -> list[str]:
        """The names of the folders inside a folder."""
        return [name for name in self.children(folder) if self.is_folder(join(folder, name))]

    def is_folder(self, path: str) -> bool:
        return path in self._children or ((member := self.resolve(path)) is not None and member.kind == "folder")

    def file(self, path: str) -> Member | None:
        member = self.resolve(path)
        return member if member is not None and member.kind == "file" else None

    def exists(self, path: str) -> bool:
        return self.file(path) is not None or self.is_folder(path)

    def resolve(self, path: str) -> Member | None:
        """The member at `path`, through links that stay inside; None where there is none."""
        for _ in range(8):
            member = self.tree.get(path)
            if member is None or member.kind not in ("symlink", "hardlink"):
                return member
            inside = link_target(path, member)
            if inside is None:
                return None
            path = inside
        return None


def normalised(name: str) -> str | None:
    """`./a//b/` is `a/b`; None for a name that leaves the archive."""
    if name.startswith("/"):
        return None
    path = posixpath.normpath(name)
    if path == ".." or path.startswith("../"):
        return None
    return "" if path == "." else path


def link_target(path: str, member: Member) -> str | None:
    """Returns the path to which a link at `path` points, relative to the root; None where it points out."""
    if member.target.startswith("/"):
        return None
    folder = posixpath.dirname(path) if member.kind == "symlink" else ""
    return normalised(join(folder, member.target))
