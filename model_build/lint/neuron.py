"""Checks the archive of a model for Neuron: the folder that containers/neuron serves, not a Triton repository.

Its files lie at the root, as `model_build.neuron.package` lays them out.
"""

import json
import re
from collections.abc import Iterator

from containers.encoder.goldens import GOLDENS, PARITY
from model_build.lint.contents import Contents
from model_build.lint.finding import Finding, FindingPlace, RuntimeContext, finding, has_neuron_cores, listing

GRAPH = re.compile(r"model\.\d+\.neuron\.pt")
SETTINGS, SERVER = "settings.json", "server.json"


def is_neuron(contents: Contents) -> bool:
    """Returns True if the root holds a Neuron graph, or the server's settings."""
    return bool(graphs(contents)) or contents.file(SERVER) is not None


def graphs(contents: Contents) -> list[str]:
    """Returns the compiled graphs at the root."""
    return [name for name in contents.children("") if GRAPH.fullmatch(name)]


def check_neuron(contents: Contents, context: RuntimeContext) -> Iterator[Finding]:
    """Checks that every file is there, and a graph for each sequence length, and that the instances have a chip."""
    settings = contents.file(SETTINGS)
    try:
        lengths = json.loads(settings.text or b"")["pad_to"] or [] if settings else []
    except (ValueError, TypeError, KeyError) as error:
        yield finding("unreadable-neuron-file", FindingPlace(SETTINGS), name=SETTINGS, problem=error)
        lengths = []
    for name in (SETTINGS, SERVER, "tokenizer.json", GOLDENS, PARITY, *(f"model.{each}.neuron.pt" for each in lengths)):
        if contents.file(name) is None:
            yield finding("missing-neuron-file", FindingPlace(name), name=name)
    if wrong := [name for name in context.instance_types or () if not has_neuron_cores(name)]:
        yield finding("wrong-hardware", FindingPlace("instance types"), names=listing(wrong))
