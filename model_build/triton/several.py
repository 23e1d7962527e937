"""Several models in one archive: those of other workloads' builds, and the router that is the default model.

Triton's front end for SageMaker sends every request to SAGEMAKER_TRITON_DEFAULT_MODEL_NAME; only a multi-model endpoint
chooses by a header (sagemaker_server.cc). So the default is a Python model that calls the one that a request names.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import containers.router
from model_build.lint import model_config
from model_build.triton.config_pbtxt import ModelConfig, Tensor
from model_build.triton.repository import TritonModel
from workloads import (
    ModelArtifact,
    NeuronTarget,
    Serving,
    Target,
    TensorRtTarget,
    UsageError,
    WorkloadFolder,
    artifact_file,
    load_artifact,
    load_workload,
)
from workloads.own_images import endpoint_kind

ROUTERS = 4
"""Copies of the router. A copy is busy until its batch of requests is answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherModel:
    """The build of another workload, packed into the archive."""

    artifact: ModelArtifact
    repository: Path
    serving: Serving

    @property
    def name(self) -> str:
        return self.artifact.default_model


def other_models(source: WorkloadFolder, target_name: str, target: Target, root: Path) -> tuple[OtherModel, ...]:
    """Returns the builds that [[models]] names. Raises `UsageError`, or `MissingArtifact` for one that is not built."""
    found: list[OtherModel] = []
    for number, entry in enumerate(source.workload.models):
        place = f"{source.file}: models.{number}"
        other = load_workload(entry.workload, source.path.parent)
        name = entry.target or target_name
        variant = other.variant(name)
        if other.workload.models:
            raise UsageError(
                f"{place}: {entry.workload} has [[models]] itself. Allowed: workloads without. Name its models here."
            )
        if problem := _place_problem(target_name, target, name, other.target(variant.target)):
            raise UsageError(f"{place}: {problem}")
        file = artifact_file(root, entry.workload, name)
        artifact = load_artifact(root, entry.workload, name)
        found.append(OtherModel(artifact=artifact, repository=file.with_name("repository"), serving=variant.serving))
    return tuple(found)


def _place_problem(target_name: str, target: Target, other_name: str, other: Target) -> str | None:
    """Returns why two targets cannot share a server, or None."""
    if isinstance(target, NeuronTarget) or isinstance(other, NeuronTarget):
        named = target_name if isinstance(target, NeuronTarget) else other_name
        return (
            f"target '{named}' is for Inferentia, whose server has one model. Allowed: targets that Triton serves. "
            "Build or name another target."
        )
    own, others = _image(target), _image(other)
    if own != others:
        return (
            f"target '{other_name}' needs the {others} image, and '{target_name}' the {own} image. Allowed: targets of "
            "one image. Name another target of that workload."
        )
    both = [set(each.compute_capabilities) for each in (target, other) if isinstance(each, TensorRtTarget)]
    if len(both) == 2 and (missing := sorted(both[0] - both[1])):
        return (
            f"target '{other_name}' has no engine for compute capability {', '.join(missing)}, which '{target_name}' "
            "runs on. Allowed: engines for the same GPUs. Add the instance types to that target."
        )
    return None


def _image(target: Target) -> str:
    """Returns cpu, gpu or gpu-torch."""
    return endpoint_kind(target.runtime, None, next(iter(target.instance_types), "ml.c5.xlarge")).split("-", 2)[2]


def router(name: str, configs: Mapping[str, str]) -> TritonModel:
    """Returns the router called `name` of the models with these texts of config.pbtxt; the first one is the default.

    A tensor that is not of every model is optional. Raises `UsageError` for tensors of one name that differ in type.
    """
    models = {model: model_config.parse(text.encode()) for model, text in configs.items()}
    largest = max(int(each.max_batch_size) for each in models.values())
    outputs = {model: [tensor.name for tensor in each.output] for model, each in models.items()}
    config = ModelConfig(
        name=name,
        backend="python",
        max_batch_size=largest,
        inputs=_union({model: each.input for model, each in models.items()}),
        outputs=_union({model: each.output for model, each in models.items()}, may_lack=False),
        serving=Serving(max_batch_size=largest, model_instances=ROUTERS),
        parameters={"models": json.dumps(outputs)},
    )
    return TritonModel(config=config, files={"model.py": Path(containers.router.__path__[0], "router.py")})


def _union(tensors_of: Mapping[str, Any], *, may_lack: bool = True) -> tuple[Tensor, ...]:
    union: dict[str, Tensor] = {}
    for model, tensors in tensors_of.items():
        for tensor in tensors:
            kind, dims = model_config.enum_name(tensor, "data_type"), tuple(tensor.dims)
            known = union.setdefault(tensor.name, Tensor(name=tensor.name, data_type=kind, dims=dims))
            if (known.data_type, len(known.dims)) != (kind, len(dims)):
                raise UsageError(
                    f"models: {model} has a tensor {tensor.name} of {kind} {list(dims)}, and another model has "
                    f"{known.data_type} {list(known.dims)}. Allowed: one type for a name. Remove one of the models."
                )
            wide = tuple(a if a == b else -1 for a, b in zip(known.dims, dims, strict=True))
            shared = all(any(each.name == tensor.name for each in others) for others in tensors_of.values())
            union[tensor.name] = Tensor(name=tensor.name, data_type=kind, dims=wide, optional=may_lack and not shared)
    return tuple(union.values())
