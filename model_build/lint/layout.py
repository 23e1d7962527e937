"""Finds the folders of an archive that are models, and the versions of them that Triton loads. Pure.

The rules are those of the container's `serve` script (docker/sagemaker/serve in triton-inference-server/server: a
config.pbtxt at the root and an archive without a folder stop it) and of Triton's model_lifecycle.cc (a version is a
folder whose name is a number without leading zeros; others are ignored).
"""

import re
from dataclasses import dataclass

from model_build.lint.contents import Contents, join
from model_build.lint.finding import Finding, listing
from model_build.lint.model_config import ModelConfig, parse
from model_build.lint.paths import is_litter
from model_build.lint.reading import MAX_CONFIG_BYTES

VERSION = re.compile(r"0|[1-9]\d*")
MAX_DEPTH = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model folder. `config` is None where there is none, or none that can be read."""

    name: str
    config: ModelConfig | None
    config_written: bool
    versions: tuple[str, ...]
    """The versions that Triton loads."""

    @property
    def config_file(self) -> str:
        return join(self.name, "config.pbtxt")

    def line(self, key: str) -> int | None:
        """Returns the line on which a key is written; `input[0]` is `input`."""
        return self.config.lines.get(key.replace("[0]", "")) if self.config else None


def find_models(contents: Contents) -> tuple[list[Model], list[Finding]]:
    """Returns the models and the findings on the layout; no models where the layout is wrong as a whole."""
    if contents.file("config.pbtxt"):
        return [], [_config_at_root(contents)]
    roots = [name for name in contents.folders("") if not is_litter(name)]
    names = [name for name in roots if _is_model(contents, name)]
    if not names:
        return [], _no_model(contents, roots)
    findings = _stray(contents, [name for name in roots if name not in names])
    models = []
    for name in names:
        model, problems = _model(contents, name)
        models.append(model)
        findings += problems
    return models, findings


def _is_model(contents: Contents, folder: str) -> bool:
    has_version = any(VERSION.fullmatch(name) for name in contents.folders(folder))
    return has_version or contents.file(join(folder, "config.pbtxt")) is not None


def _config_at_root(contents: Contents) -> Finding:
    return Finding(
        code="config-at-root",
        severity="error",
        what="config.pbtxt is at the root of the archive; the model's own folder is missing.",
        file="config.pbtxt",
        why="The container stops with 'Incorrect directory structure' before it starts Triton.",
        fix="Pack the folder that holds the model folder: MODEL/config.pbtxt, MODEL/1/...",
    )


def _no_model(contents: Contents, roots: list[str]) -> list[Finding]:
    if wrapper := _wrapper(contents, roots):
        inside = [name for name in contents.folders(wrapper) if _is_model(contents, join(wrapper, name))]
        return [
            Finding(
                code="wrapper-folder",
                severity="error",
                what=f"The models ({listing(inside)}) are inside the folder '{wrapper}' and not at the root.",
                file=wrapper,
                why=f"Triton takes the top-level folder for the model, and '{wrapper.split('/')[0]}' is none: it has "
                "neither a config.pbtxt nor a version.",
                fix=f"Pack from inside it: `tar -C {wrapper} -czf model.tar.gz .`",
            )
        ]
    if not roots:
        return [
            Finding(
                code="no-model",
                severity="error",
                what="There is no model folder.",
                file="/",
                why="The container stops with 'No model found in model repository'.",
                fix="Pack a model repository: MODEL/config.pbtxt, MODEL/1/...",
            )
        ]
    return [_no_version(name, contents) for name in roots]


def _wrapper(contents: Contents, roots: list[str]) -> str | None:
    """Returns the shallowest folder that holds model folders."""
    level = roots
    for _ in range(MAX_DEPTH):
        below = {folder: [join(folder, name) for name in contents.folders(folder)] for folder in level}
        for folder, inside in below.items():
            if any(_is_model(contents, path) for path in inside):
                return folder
        level = [path for inside in below.values() for path in inside]
    return None


def _stray(contents: Contents, names: list[str]) -> list[Finding]:
    if not names:
        return []
    return [
        Finding(
            code="stray-folder",
            severity="warning",
            what=f"Top-level folders that are no models: {listing(names)}.",
            file=names[0],
            why="The container counts every top-level folder as a model; with more than one it does not start unless "
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME is set.",
            fix="Move it into the model's folder, or leave it out.",
        )
    ]


def _model(contents: Contents, name: str) -> tuple[Model, list[Finding]]:
    config, findings = _config(contents, name)
    written = contents.file(join(name, "config.pbtxt")) is not None
    numbers = sorted((int(text) for text in contents.folders(name) if VERSION.fullmatch(text)), reverse=True)
    model = Model(name=name, config=config, config_written=written, versions=tuple(map(str, _loaded(numbers, config))))
    if not numbers:
        findings.append(_no_version(name, contents))
    elif not model.versions:
        findings.append(_no_chosen_version(model, numbers))
    return model, findings


def _loaded(numbers: list[int], config: ModelConfig | None) -> list[int]:
    """`numbers` is newest first."""
    policy = config or ModelConfig()
    if policy.versions is not None:
        return [number for number in numbers if number in policy.versions]
    return numbers[: policy.latest_versions]


def _config(contents: Contents, name: str) -> tuple[ModelConfig | None, list[Finding]]:
    file = join(name, "config.pbtxt")
    member = contents.file(file)
    if member is None:
        return None, []
    if member.text is None:
        return None, [
            Finding(
                code="config-too-large",
                severity="error",
                what=f"config.pbtxt has {member.size:,} bytes; it is read up to {MAX_CONFIG_BYTES:,}.",
                file=file,
                why="No model configuration is that large: something else was packed under this name.",
                fix="Pack the configuration.",
            )
        ]
    parsed = parse(member.text)
    if isinstance(parsed, ModelConfig):
        return parsed, []
    return None, [
        Finding(
            code="unparsable-config",
            severity="error",
            what=f"config.pbtxt is no ModelConfig: {parsed.problem}",
            file=file,
            line=parsed.line,
            why="Triton reads it with the same protobuf schema and does not load the model.",
            fix="Correct it; the fields are those of model_config.proto.",
        )
    ]


def _no_version(name: str, contents: Contents) -> Finding:
    return Finding(
        code="no-version",
        severity="error",
        what=f"The model folder '{name}' holds no version folder; it holds {listing(contents.children(name))}.",
        file=name,
        why="Triton loads versions, which are folders named 1, 2, ... without leading zeros; anything else it ignores. "
        "An ensemble needs one too, though it is empty.",
        fix=f"Add the folder {name}/1/ with the model's files.",
    )


def _no_chosen_version(model: Model, numbers: list[int]) -> Finding:
    return Finding(
        code="no-version",
        severity="error",
        what=f"The version policy chooses none of the versions that are there: {', '.join(map(str, numbers))}.",
        file=model.config_file,
        line=model.line("version_policy"),
        key="version_policy",
        why="Triton loads no version of the model, and with none it does not start.",
        fix="Name versions that are there, or drop version_policy for the newest.",
    )
