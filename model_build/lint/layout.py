"""Finds the model folders of an archive, and the versions of them that Triton loads. Pure.

The rules are those of the container's `serve` script (docker/sagemaker/serve in triton-inference-server/server: a
config.pbtxt at the root and an archive without a folder stop it) and of Triton's model_lifecycle.cc (a version is a
folder whose name is a number without leading zeros; others are ignored).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from posixpath import join
from typing import Any

from model_build.lint.contents import MAX_CONFIG_BYTES, Contents
from model_build.lint.finding import Finding, FindingPlace, RuntimeContext, finding, listing
from model_build.lint.model_config import Misread, empty, parse
from model_build.lint.paths import is_litter

VERSION = re.compile(r"0|[1-9]\d*")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedModel:
    """A model folder."""

    name: str
    config: Any
    """A protobuf ModelConfig; empty if there is no readable config.pbtxt."""
    has_file: bool
    readable: bool
    versions: tuple[str, ...]
    """The versions that Triton loads."""

    @property
    def file(self) -> str:
        return join(self.name, "config.pbtxt")

    @property
    def is_ensemble(self) -> bool:
        return self.config.platform == "ensemble" or bool(self.config.HasField("ensemble_scheduling"))

    @property
    def calls(self) -> list[str]:
        """The models that an ensemble's steps call."""
        return [step.model_name for step in self.config.ensemble_scheduling.step]

    def place(self, key: str) -> FindingPlace:
        return FindingPlace(self.file, key=key)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRepository:
    """An archive's models, and where they will run: the input of every check."""

    contents: Contents
    models: Mapping[str, PackedModel]
    context: RuntimeContext


def find_models(contents: Contents) -> tuple[list[PackedModel], list[Finding]]:
    """Returns the models and the findings on the layout; no models if the layout as a whole is wrong."""
    if contents.file("config.pbtxt"):
        return [], [finding("config-at-root", FindingPlace("config.pbtxt"))]
    roots = [name for name in contents.folders("") if not is_litter(name)]
    names = [name for name in roots if _is_model(contents, name)]
    if not names:
        return [], [*_no_model(contents, roots)]
    stray = [name for name in roots if name not in names]
    findings = [finding("stray-folder", FindingPlace(stray[0]), names=listing(stray))] if stray else []
    return [_model(contents, name, findings) for name in names], findings


def _is_model(contents: Contents, folder: str) -> bool:
    has_version = any(VERSION.fullmatch(name) for name in contents.folders(folder))
    return has_version or contents.file(join(folder, "config.pbtxt")) is not None


def _no_model(contents: Contents, roots: list[str]) -> Iterator[Finding]:
    if wrapper := _wrapper(contents):
        inside = [name for name in contents.folders(wrapper) if _is_model(contents, join(wrapper, name))]
        root = wrapper.split("/")[0]
        yield finding("wrapper-folder", FindingPlace(wrapper), models=listing(inside), wrapper=wrapper, root=root)
    elif not roots:
        yield finding("no-model", FindingPlace("/"))
    else:
        for name in roots:
            yield _no_version(name, contents)


def _wrapper(contents: Contents) -> str | None:
    """Returns the shallowest folder that holds model folders."""
    folders = ["/".join(path.split("/")[:-2]) for path in contents.tree if path.endswith("/config.pbtxt")]
    return min(folders, key=lambda folder: folder.count("/"), default=None)


def _model(contents: Contents, name: str, findings: list[Finding]) -> PackedModel:
    file = join(name, "config.pbtxt")
    config, problem = _config(contents, file)
    findings += [problem] if problem else []
    numbers = sorted((int(text) for text in contents.folders(name) if VERSION.fullmatch(text)), reverse=True)
    model = PackedModel(
        name=name,
        config=config,
        has_file=contents.file(file) is not None,
        readable=problem is None,
        versions=tuple(map(str, _loaded(numbers, config))),
    )
    if not numbers:
        findings.append(_no_version(name, contents))
    return model


def _config(contents: Contents, file: str) -> tuple[Any, Finding | None]:
    """Returns the configuration, and the reason why it cannot be read."""
    member = contents.file(file)
    if member is None:
        return empty(), None
    if member.text is None:
        return empty(), finding("config-too-large", FindingPlace(file), size=member.size, limit=MAX_CONFIG_BYTES)
    parsed = parse(member.text)
    if isinstance(parsed, Misread):
        return empty(), finding("unparsable-config", FindingPlace(file, parsed.line), problem=parsed.problem)
    return parsed, None


def _loaded(numbers: list[int], config: Any) -> list[int]:
    """Returns the versions that the policy selects; `numbers` is newest first."""
    policy = config.version_policy
    chosen = policy.WhichOneof("policy_choice")
    if chosen == "specific":
        return [number for number in numbers if number in policy.specific.versions]
    return numbers if chosen == "all" else numbers[: policy.latest.num_versions or 1]


def _no_version(name: str, contents: Contents) -> Finding:
    return finding("no-version", FindingPlace(name), name=name, children=listing(contents.children(name)))
