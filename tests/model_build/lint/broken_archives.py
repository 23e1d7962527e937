"""Broken archives: good miniature repositories with one fault each, from faults.toml."""

import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomllib

from model_build.lint.finding import RuntimeContext
from tests.model_build.lint.good_archives import (
    ENGINES,
    ENVIRONMENT,
    ON_CPU,
    ON_GPU,
    SCORING,
    TORCH_SAVE,
    Device,
    Link,
    Tree,
    plan,
)

BASES: Mapping[str, Tree] = {
    "scoring": SCORING,
    "engines": ENGINES,
    "score": {file: entry for file, entry in SCORING.items() if file.startswith("score/")},
    "encoder": {file: entry for file, entry in ENGINES.items() if file.startswith("encoder/")},
    "empty": {},
}


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    base: Tree
    tree: Tree
    context: RuntimeContext
    finding: tuple[str, str, str]
    """Severity, code and place."""
    archive_only: bool
    triton_rejects: bool


def edit(tree: Tree, kind: str, file: str, *values: Any) -> None:
    match kind, values:
        case "text", [content]:
            tree[file] = content.encode("latin-1")
        case "large", [size]:
            tree[file] = b"#" * size
        case "plan", [version]:
            tree[file] = plan(*map(int, version.split(".")))
        case "torch.save", []:
            tree[file] = TORCH_SAVE
        case "symlink" | "hardlink", [target]:
            tree[file] = Link(target, tarfile.SYMTYPE if kind == "symlink" else tarfile.LNKTYPE)
        case "pipe" | "device", []:
            tree[file] = Device(tarfile.FIFOTYPE if kind == "pipe" else tarfile.CHRTYPE)
        case "folder", []:
            tree[file] = None
        case "drop", []:
            del tree[file]
        case "move", [new]:
            for name in [name for name in tree if name.startswith(file)]:
                tree[new + name.removeprefix(file)] = tree.pop(name)
        case "replace", [old, new]:
            text = tree[file]
            assert isinstance(text, bytes)
            assert old.encode() in text, f"{old!r} is not in {file}"
            tree[file] = text.replace(old.encode(), new.encode())
        case _:
            raise ValueError(f"unknown edit: {kind} {values}")


def fault(
    name: str,
    *,
    finding: Sequence[str],
    base: str = "scoring",
    edits: Sequence[Sequence[Any]] = (),
    environment: Mapping[str, Any] | None = None,
    known: Mapping[str, Any] | None = None,
    archive_only: bool = False,
    triton_rejects: bool = False,
) -> Fault:
    tree = dict(BASES[base])
    for each in edits:
        edit(tree, *each)
    changes = {f"SAGEMAKER_TRITON_{key}": value for key, value in (environment or {}).items()}
    facts: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in (known or {}).items()
    }
    severity, code, where = finding
    return Fault(
        name=name,
        base=BASES[base],
        tree=tree,
        context=replace(
            ON_GPU if base in ("engines", "encoder") else ON_CPU,
            environment={key: value for key, value in {**ENVIRONMENT, **changes}.items() if value is not False},
            **facts,
        ),
        finding=(severity, code, where),
        archive_only=archive_only,
        triton_rejects=triton_rejects,
    )


FAULTS = [
    fault(name, **table)
    for name, table in tomllib.loads(Path(__file__).with_name("faults.toml").read_text("utf-8")).items()
]
