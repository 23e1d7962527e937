"""Checks the archive of a model for Neuron, which is no Triton repository but the folder that containers/neuron serves.

Its files lie at the root, as `model_build.neuron.package` lays them out. What is asked of them is what the server and
its golden check ask, with the same readers. The graphs are not loaded.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from containers.encoder.goldens import GOLDENS, PARITY, Golden, Limits
from containers.encoder.goldens import from_json as read_goldens
from containers.encoder.settings import Settings
from containers.neuron.server_settings import ServerSettings
from model_build.lint.contents import Contents
from model_build.lint.finding import Finding, listing
from model_build.lint.model_config import ModelConfig, Tensor
from model_build.lint.paths import is_torchscript
from model_build.lint.payloads import check_payloads
from model_build.lint.runtime_context import RuntimeContext, has_neuron_cores

GRAPH = re.compile(r"model\.(\d+)\.neuron\.pt")
SETTINGS, SERVER, TOKENIZER = "settings.json", "server.json", "tokenizer.json"
FILES = (SETTINGS, SERVER, TOKENIZER, GOLDENS, PARITY)
WHY_MISSING = "The server says so and ends with exit code 3; the endpoint never answers /ping."
BUILD = "Build the model again with this project, and pack the whole folder."

T = TypeVar("T")


def is_neuron(contents: Contents) -> bool:
    """True where the root holds a Neuron graph, or the server's settings."""
    return bool(graphs(contents)) or contents.file(SERVER) is not None


def graphs(contents: Contents) -> list[str]:
    """Returns the compiled graphs at the root."""
    return [name for name in contents.children("") if GRAPH.fullmatch(name)]


def check_neuron(contents: Contents, context: RuntimeContext) -> list[Finding]:
    """Returns the findings on the layout, on what its files say together, and on requests. Raises `UsageError`."""
    findings = [_missing(name) for name in FILES if contents.file(name) is None]
    settings = _read(contents, SETTINGS, Settings.from_json, findings)
    server = _read(contents, SERVER, ServerSettings.from_json, findings)
    goldens = _read(contents, GOLDENS, read_goldens, findings)
    _read(contents, PARITY, Limits.from_json, findings)
    if settings is not None:
        lengths = settings.pad_to or (settings.max_input_tokens,)
        findings += _graphs(contents, lengths)
        findings += [] if goldens is None else _goldens(goldens, lengths)
    findings += _hardware(context)
    if settings is not None and server is not None:
        findings += check_payloads(context.payloads or (), server.model, _signature(settings, server))
    return findings


def _missing(name: str) -> Finding:
    return Finding(
        code="missing-neuron-file",
        severity="error",
        what=f"{name} is not at the root of the archive.",
        file=name,
        why=WHY_MISSING,
        fix=BUILD,
    )


def _read(contents: Contents, name: str, read: Callable[[str], T], findings: list[Finding]) -> T | None:
    """Returns the file's values; None, with a finding, where it cannot be read."""
    member = contents.file(name)
    if member is None:
        return None
    try:
        if member.text is None:
            raise ValueError(f"it has {member.size:,} bytes, and no such file is that large")
        return read(member.text.decode())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        findings.append(
            Finding(
                code="unreadable-neuron-file",
                severity="error",
                what=f"{name} cannot be read ({type(error).__name__}: {error}).",
                file=name,
                why=WHY_MISSING,
                fix=BUILD,
            )
        )
        return None


def _graphs(contents: Contents, lengths: tuple[int, ...]) -> list[Finding]:
    findings = []
    for length in lengths:
        name = f"model.{length}.neuron.pt"
        if (member := contents.file(name)) is None:
            found = listing(graphs(contents)) or "none"
            what = f"{name} is missing, which pad_to of {SETTINGS} asks for; there is {found}."
        elif not is_torchscript(member):
            what = f"{name} is no TorchScript file, which torch.jit.save writes."
        else:
            continue
        findings.append(
            Finding(code="missing-model-file", severity="error", what=what, file=name, why=WHY_MISSING, fix=BUILD)
        )
    return findings


def _goldens(goldens: list[Golden], lengths: tuple[int, ...]) -> list[Finding]:
    lacking = [str(length) for length in lengths if not any(golden.length == length for golden in goldens)]
    if not lacking:
        return []
    return [
        Finding(
            code="no-golden-row",
            severity="error",
            what=f"{GOLDENS} has no row for the graphs of {', '.join(lacking)} tokens.",
            file=GOLDENS,
            why="A worker compares every graph with the original on each core, and does not serve one unchecked.",
            fix=BUILD,
        )
    ]


def _hardware(context: RuntimeContext) -> list[Finding]:
    wrong = [name for name in context.instance_types or () if not has_neuron_cores(name)]
    if not wrong:
        return []
    return [
        Finding(
            code="wrong-hardware",
            severity="error",
            what=f"The model is compiled for NeuronCores, and {listing(wrong)} has none.",
            file="instance types",
            why="The server finds no /dev/neuron* device and ends with exit code 3.",
            fix="Choose inf1 or inf2, the one it was compiled for, or build the workload for that type.",
        )
    ]


def _signature(settings: Settings, server: ServerSettings) -> ModelConfig:
    """Returns what the server takes, in the words of a Triton model that takes the same requests."""
    texts: dict[str, Any] = {"data_type": "TYPE_STRING", "dims": (1,), "inner_dims": (1,)}
    return ModelConfig(
        name=server.model,
        max_batch_size=server.max_batch_size,
        inputs=tuple(Tensor(name=field.upper(), **texts) for field in settings.fields),
    )
