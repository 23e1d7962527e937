"""Which target supports which family of models for which task, and why another does not. Pure.

`python -m model_build plan --families` prints them as a table, which docs/families.md has, too.
`plan` rejects a target with the same functions. Keys of a single checkpoint are checked by `checkpoint`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from model_build.checkpoint.families import FAMILIES, HEADS, NOT_BUILT, Family
from model_build.checkpoint.text2text import NAMES
from model_build.encoder.graphs import native
from model_build.text2text.repository import ENGINES, beams_refusal
from workloads import (
    CudaTarget,
    NeuronTarget,
    OnnxRuntimeTarget,
    OpenVinoTarget,
    Target,
    TensorRtTarget,
    TorchScriptTarget,
)

TARGETS: Mapping[str, Target] = {
    "cpu": OnnxRuntimeTarget(runtime="onnxruntime", instance_types=("ml.c5.xlarge",)),
    "cpu-int8": OnnxRuntimeTarget(runtime="onnxruntime", precision="int8", instance_types=("ml.c5.xlarge",)),
    "openvino": OpenVinoTarget(runtime="openvino", instance_types=("ml.c7i.xlarge",)),
    "openvino-int8": OpenVinoTarget(runtime="openvino", precision="int8", instance_types=("ml.c5.xlarge",)),
    "cpu-torchscript": TorchScriptTarget(runtime="torchscript", instance_types=("ml.c5.xlarge",)),
    "pytorch": TorchScriptTarget(runtime="torchscript", instance_types=("ml.g4dn.xlarge",)),
    "cuda": CudaTarget(runtime="cuda", instance_types=("ml.g5.xlarge",)),
    "tensorrt": TensorRtTarget(runtime="tensorrt", instance_types=("ml.g4dn.xlarge", "ml.g5.xlarge")),
    "inf1": NeuronTarget(runtime="neuron", instance_types=("ml.inf1.xlarge",)),
    "inf2": NeuronTarget(runtime="neuronx", instance_types=("ml.inf2.xlarge",)),
}
"""One target of each kind, by the name that workloads give it."""
GENERATION = "text2text-generation"
BEAMS = f"{GENERATION} with beams"
ALL = f"all: {', '.join(HEADS)}."
Refusal = Callable[[Target], str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyRow:
    """One family and task, and the reason for each target that does not support it, by the target's name."""

    family: str
    model_type: str
    task: str
    left_out: Mapping[str, str]

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(name for name in TARGETS if name not in self.left_out)


def task_refusal(task: str, target: Target) -> str | None:
    """Returns the reason why a target's runtime does not support a task, or None."""
    if task != GENERATION:
        return None
    if isinstance(target, CudaTarget) and target.execution != "cuda-graphs":
        return f"Its execution is '{target.execution}', and a decoder runs as CUDA graphs. Leave execution out."
    if target.runtime in ENGINES:
        return None
    if isinstance(target, OpenVinoTarget):
        return f"Text-to-text models are not supported by this runtime yet. Allowed: {', '.join(ENGINES)}."
    return f"A decoder with a cache has no plain trace, and no static graph for Neuron. Allowed: {', '.join(ENGINES)}."


def network_refusal(family: Family, target: Target) -> str | None:
    """Returns the reason why a target does not support the network of a family, or None."""
    if family.fp32_alone and target.precision == "int8" and not isinstance(target, OpenVinoTarget):
        allowed = "fp32, fp16" if isinstance(target, TensorRtTarget) else "fp32"
        return f"int8 would not change it: {family.fp32_alone}. Allowed: {allowed}."
    on_gpu = isinstance(target, CudaTarget) or (isinstance(target, TorchScriptTarget) and native(target))
    if family.own_network or not (on_gpu or isinstance(target, NeuronTarget)):
        return None
    ours = ", ".join(each.name for each in FAMILIES.values() if each.own_network)
    place, reason = (
        ("PyTorch on a GPU", "a trace of transformers' module keeps its mask on the CPU")
        if on_gpu
        else ("Inferentia", "AWS's Neuron images have no transformers")
    )
    return (
        f"{place} takes only this project's own networks, of {ours}: {reason}. Allowed: onnxruntime, openvino, "
        "tensorrt, and torchscript on CPU."
    )


def rows() -> Iterator[FamilyRow]:
    """Yields encoders first, each family with every task of encoders, then encoder–decoders."""
    for family in FAMILIES.values():
        for task in HEADS:
            yield _row(family.name, family.model_type, task, _of_encoder(family, task))
    for model_type, (name, reason) in NOT_BUILT.items():
        for task in HEADS:
            yield _row(name, model_type, task, _always(f"{reason}."))
    for model_type, name in NAMES.items():
        yield _row(name, model_type, GENERATION, _of_decoder(beams=False))
        yield _row(name, model_type, BEAMS, _of_decoder(beams=True))


def document() -> dict[str, Any]:
    """Returns the document of --json."""
    targets = {
        name: {"runtime": target.runtime, "precision": getattr(target, "precision", None)}
        for name, target in TARGETS.items()
    }
    families = [{**asdict(row), "targets": list(row.targets)} for row in rows()]
    return {"targets": targets, "families": families}


def markdown() -> str:
    """Returns the table as Markdown, as in docs/families.md: families with the same cells share a line; then notes."""
    notes: dict[str, int] = {}
    families_of: dict[tuple[str, ...], list[str]] = {}
    for family, group in groupby(rows(), key=lambda row: row.family):
        own = list(group)
        missing = [f"{row.task} {_note(next(iter(row.left_out.values())), notes)}" for row in own if not row.targets]
        tasks_of: dict[tuple[str, ...], list[str]] = {}
        for row in own:
            left_out = row.left_out
            cells = tuple(f"no {_note(left_out[name], notes)}" if name in left_out else "yes" for name in TARGETS)
            tasks_of.setdefault(cells if row.targets else (), []).append(row.task)
        nowhere = tasks_of.pop((), [])
        if not tasks_of:
            cells = (*["no"] * len(TARGETS), f"none {missing[0].rpartition(' ')[2]}")
            families_of.setdefault(cells, []).append(family)
        for cells, tasks in tasks_of.items():
            whole = {*tasks, *nowhere} == HEADS.keys()
            named = "all but " + ", ".join(missing) if missing else "all"
            families_of.setdefault((*cells, named if whole else ", ".join(tasks)), []).append(family)
    lines = [("families", *TARGETS, "tasks"), ("---",) * (len(TARGETS) + 2)]
    lines += [(", ".join(families), *cells) for cells, families in families_of.items()]
    numbered = [f"- [{number}] {reason}" for reason, number in notes.items()]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", f"- {ALL}", *numbered])


def _row(family: str, model_type: str, task: str, refusal: Refusal) -> FamilyRow:
    left_out = {name: said for name, target in TARGETS.items() if (said := refusal(target))}
    return FamilyRow(family=family, model_type=model_type, task=task, left_out=left_out)


def _of_encoder(family: Family, task: str) -> Refusal:
    if reason := family.lacks_head(task):
        return _always(f"{reason}.")
    return lambda target: task_refusal(task, target) or network_refusal(family, target)


def _of_decoder(*, beams: bool) -> Refusal:
    return lambda target: task_refusal(GENERATION, target) or (beams_refusal(target) if beams else None)


def _always(reason: str) -> Refusal:
    return lambda _: reason


def _note(reason: str, notes: dict[str, int]) -> str:
    return f"[{notes.setdefault(reason, len(notes) + 1)}]"
