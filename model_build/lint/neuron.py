"""Checks the archive of a model for Neuron: the folder that containers/neuron serves, not a Triton repository.

Its files lie at the root, as `model_build.neuron.package` lays them out. The checks are those of the server and its
golden check, with the same readers. The graphs are not loaded.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from containers.encoder.goldens import GOLDENS, PARITY
from containers.encoder.settings import Settings
from containers.neuron.placement import ServerSettings
from model_build.lint.contents import Contents
from model_build.lint.finding import Finding, FindingPlace, finding, listing
from model_build.lint.model_config import empty
from model_build.lint.payloads import check_payloads
from model_build.lint.runtime_context import RuntimeContext, has_neuron_cores

GRAPH = re.compile(r"model\.(\d+)\.neuron\.pt")
SETTINGS, SERVER, TOKENIZER = "settings.json", "server.json", "tokenizer.json"
FILES = (SETTINGS, SERVER, TOKENIZER, GOLDENS, PARITY)

T = TypeVar("T")


def is_neuron(contents: Contents) -> bool:
    """Returns True if the root holds a Neuron graph, or the server's settings."""
    return bool(graphs(contents)) or contents.file(SERVER) is not None


def graphs(contents: Contents) -> list[str]:
    """Returns the compiled graphs at the root."""
    return [name for name in contents.children("") if GRAPH.fullmatch(name)]


def check_neuron(contents: Contents, context: RuntimeContext) -> list[Finding]:
    """Returns the findings on the layout, on its files together, and on requests. Raises `UsageError`."""
    missing = [name for name in FILES if contents.file(name) is None]
    findings = [finding("missing-neuron-file", FindingPlace(name), name=name) for name in missing]
    settings = _read(contents, SETTINGS, Settings.from_json, findings)
    server = _read(contents, SERVER, ServerSettings.from_json, findings)
    if settings is not None:
        needed = [f"model.{length}.neuron.pt" for length in settings.pad_to or (settings.max_input_tokens,)]
        findings += [
            finding("missing-neuron-file", FindingPlace(name), name=name) for name in needed if not contents.file(name)
        ]
    if wrong := [name for name in context.instance_types or () if not has_neuron_cores(name)]:
        findings.append(finding("wrong-hardware", FindingPlace("instance types"), names=listing(wrong)))
    if settings is not None and server is not None:
        findings += check_payloads(context.payloads or (), server.model, _signature(settings, server))
    return findings


def _read(contents: Contents, name: str, read: Callable[[str], T], findings: list[Finding]) -> T | None:
    """Returns the file's values; None, with a finding, if it cannot be read."""
    member = contents.file(name)
    if member is None:
        return None
    try:
        if member.text is None:
            raise ValueError(f"it has {member.size:,} bytes, too many for such a file")
        return read(member.text.decode())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        findings.append(finding("unreadable-neuron-file", FindingPlace(name), name=name, problem=problem))
        return None


def _signature(settings: Settings, server: ServerSettings) -> Any:
    """Returns the configuration of a Triton model that takes the same requests."""
    config = empty()
    config.name, config.max_batch_size = server.model, server.max_batch_size
    for field in settings.fields:
        tensor = config.input.add(name=field.upper(), dims=[1])
        tensor.data_type = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name["TYPE_STRING"].number
    return config
