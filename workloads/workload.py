"""`workload.toml`, typed: a model, its targets, how it is served, the objective, the traffic and the hosting.

Units are in the names. A field without a default is one for which none can be computed.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from workloads.document import Document
from workloads.errors import UsageError
from workloads.hosting import Hosting, SageMakerEndpointHosting
from workloads.images import default_version, starts
from workloads.instances import hardware, instance_shape
from workloads.model import Model, TextToText, metrics_of
from workloads.objective import LatencyObjective, Objective, Sizing
from workloads.serving import Serving, Tune, Variant, inherited
from workloads.target import NeuronTarget, Target, TensorRtTarget
from workloads.traffic import Published, Recommender, SimulationSettings, Traffic

WORKLOAD_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
AGREEMENT = "agreement"
"""The metric of examples that the original model labelled: the share that a model answers as the original does."""


def name_problem(name: str) -> str | None:
    """Returns the problem with a workload's name and a valid name like it; None for a valid name."""
    if WORKLOAD_NAME.fullmatch(name):
        return None
    near = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[:31]
    hint = f" Say {near}." if WORKLOAD_NAME.fullmatch(near) else ""
    return (
        f"got '{name}', but a workload's name begins with a small letter, and small letters, digits and underscores "
        f"follow, 31 at most.{hint}"
    )


def _named(name: str) -> str:
    if problem := name_problem(name):
        raise ValueError(problem)
    return name


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$")]
Metric = Annotated[float, Field(ge=-1, le=1)]


class OtherModel(Document):
    """`[[models]]`: a request chooses it by the parameter `model`, which is the workload's name."""

    workload: Annotated[str, AfterValidator(_named)]
    target: Name | None = Field(default=None, description="Its target or variant. None: of the built target's name.")


class Workload(Document):
    name: Annotated[str, AfterValidator(_named)]
    description: Annotated[str, Field(min_length=1)]
    model: Model
    quality: dict[str, Metric] = Field(
        description="The least that the original model must reach on evaluation.jsonl before anything is built from "
        "it, by metric: min_accuracy. A metric without one is only reported. min_agreement stands by itself: the "
        "labels are then the original's own answers, and it is the share of them that the compiled model gives, too."
    )
    targets: dict[Name, Target] = Field(min_length=1)
    serving: Serving = Serving()
    models: tuple[OtherModel, ...] = Field(
        default=(),
        description="Other workloads whose builds are packed into this one's archive and answer behind its endpoint.",
    )
    variants: dict[Name, Variant] = Field(default={}, description="Other ways to serve the targets, by name.")
    objective: Objective = Field(
        description="Of every target that has no [targets.NAME.objective]. Read it as `latency_objective`."
    )
    sizing: Sizing = Sizing()
    traffic: dict[Name, Traffic] = Field(default={}, description="Load profiles by name. Without any: no load test.")
    published: dict[Name, Published] = Field(
        default={}, description="Experiments of which others published the figures, with their model and their load."
    )
    recommender: Recommender = Recommender()
    simulation: SimulationSettings = SimulationSettings()
    tune: Tune = Field(default=Tune(), description="What `tune` tries; by default what fits the machine.")
    hosting: Hosting

    @classmethod
    def from_table(cls, file: Path, table: Mapping[str, Any]) -> Self:
        """Validates workload.toml, in which a variant says only how it differs from the workload's serving."""
        return super().from_table(file, _variants_inherit_serving(table))

    @field_validator("quality", mode="after")
    @classmethod
    def _metrics_are_the_tasks(cls, quality: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        if (model := info.data.get("model")) is None:
            return quality
        known = metrics_of(model)
        if quality.keys() != {f"min_{AGREEMENT}"} and (
            not quality or set(quality) - {f"min_{metric}" for metric in known}
        ):
            wanted = ", ".join(f"min_{metric}" for metric in known)
            raise ValueError(
                f"{model.task} has the keys {wanted}, or min_{AGREEMENT} alone where the original labelled the rows; "
                f"got {', '.join(quality) or 'none'}."
            )
        return quality

    @model_validator(mode="after")
    def _names_meet(self) -> Self:
        if both := sorted(set(self.targets) & set(self.variants)):
            raise ValueError(f"variants.{both[0]}: a target has that name; call the variant something else.")
        for key, name, known in self._references():
            if name not in known:
                raise ValueError(f"{key}: got '{name}'. Allowed: {', '.join(known) or 'none'}.")
        if not self.instance_types:
            raise ValueError(
                f"targets.{self.variant(self.hosting.target).target}.instance_types: is required, "
                "because hosting.target names it."
            )
        return self

    def _references(self) -> Iterator[tuple[str, str, Collection[str]]]:
        """Yields each key whose value names another table, the name, and the names of such tables."""
        for name, variant in self.variants.items():
            yield f"variants.{name}.target", variant.target, self.targets
        for key, target in zip(("hosting.target", "hosting.shadow.target"), self.deployed, strict=False):
            yield key, target, self.deployables
        for target in self.tune.targets:
            yield "tune.targets", target, self.targets
        for name, published in self.published.items():
            yield f"published.{name}.traffic", published.traffic, self.traffic
            for each in published.variants:
                yield f"published.{name}.variants", each, self.deployables
            yield f"published.{name}.baseline", published.baseline, published.variants
            for each in published.rows:
                yield f"published.{name}.rows", each, published.variants

    @model_validator(mode="after")
    def _models_have_names_of_their_own(self) -> Self:
        names = [self.name, *(each.workload for each in self.models)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"models: '{twice[0]}' is named twice. Allowed: each workload once, beside this one, '{self.name}'. "
                "Remove the second entry."
            )
        if self.models and not isinstance(self.hosting, SageMakerEndpointHosting):
            raise ValueError(
                f"models: got [[models]], and hosting.kind is {self.hosting.kind}. Allowed: sagemaker-endpoint. Change "
                "hosting.kind, or remove [[models]]."
            )
        return self

    @model_validator(mode="after")
    def _copies_fit_the_hardware(self) -> Self:
        for name in dict.fromkeys((self.hosting.target, *self.variants)):
            if problem := self.misplaced(name):
                raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _objectives_of_targets_fit(self) -> Self:
        for name, target in self.targets.items():
            if target.objective is None:
                continue
            if not isinstance(self.objective, LatencyObjective):
                raise ValueError(
                    f"targets.{name}.objective: replaces keys of a latency objective, and this workload is a batch. "
                    "Remove the table."
                )
            try:
                target.objective.in_place_of(self.objective)
            except ValidationError as error:
                raise ValueError(f"targets.{name}.objective: {error.errors()[0]['ctx']['error']}") from error
        return self

    @model_validator(mode="after")
    def _requests_fit_a_batch(self) -> Self:
        rows = []
        if isinstance(self.objective, LatencyObjective):
            of_each = self.objective.rows_per_invocation
            rows += [("objective.rows_per_invocation", name, of_each) for name in self.deployed]
        for name, published in self.published.items():
            if isinstance(self.model, TextToText):
                raise ValueError(f"published.{name}: is for encoders, and {self.model.task} is none.")
            rows += [(f"published.{name}.rows.{each}", each, count) for each, count in published.rows.items()]
        for key, name, count in rows:
            if count > (most := self.variant(name).serving.max_batch_size):
                raise ValueError(
                    f"{key}: got {count}, and a request to '{name}' has at most {most} rows, its "
                    "serving.max_batch_size."
                )
        return self

    @field_validator("targets", "traffic", mode="after")
    @classmethod
    def _sorted_by_name(cls, table: dict[str, object]) -> dict[str, object]:
        return dict(sorted(table.items()))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Returns what evaluation.jsonl measures: the model's metrics, or agreement with the original's labels."""
        return (AGREEMENT,) if f"min_{AGREEMENT}" in self.quality else metrics_of(self.model)

    @property
    def stack_name(self) -> str:
        """Returns SpellcheckStack for spellcheck, QueryIntentStack for query_intent."""
        return "".join(word.capitalize() for word in self.name.split("_")) + "Stack"

    @property
    def release_stack_name(self) -> str:
        """Returns SpellcheckReleaseStack for spellcheck: the stack of its release pipeline."""
        return f"{self.stack_name.removesuffix('Stack')}ReleaseStack"

    @property
    def package_group(self) -> str:
        """Returns the model package group in which `register` and a release register its models."""
        return self.name.replace("_", "-")

    @property
    def deployables(self) -> tuple[str, ...]:
        """Returns the names that can be built: every target, served as `serving` says, and every variant."""
        return (*self.targets, *self.variants)

    def variant(self, name: str) -> Variant:
        """Returns the variant of a deployable's name, with the copies of its model; a target has those of `serving`."""
        found = self.variants.get(name) or Variant(target=name, serving=self.serving)
        if (target := self.targets.get(found.target)) is None:
            return found
        return found.model_copy(update={"serving": found.serving.filled(target.copies)})

    def misplaced(self, name: str) -> str | None:
        """Returns why Triton would find no place for a copy of a deployable's model, or None."""
        variant = self.variant(name)
        key = f"variants.{name}.serving" if name in self.variants else "serving"
        problem = _misplaced(self.targets[variant.target], variant.serving)
        return f"{key}.instance_groups: {problem}" if problem else None

    @property
    def hosted(self) -> Target:
        """Returns the target that is deployed."""
        return self.targets[self.variant(self.hosting.target).target]

    @property
    def deployed(self) -> tuple[str, ...]:
        """Returns the names whose builds a stack deploys: hosting.target, and a shadow's if it has one."""
        shadow = self.hosting.shadow if isinstance(self.hosting, SageMakerEndpointHosting) else None
        return (self.hosting.target, *([shadow.target] if shadow else []))

    @property
    def cpu_target(self) -> str | None:
        """Returns the first target for CPUs with instance types, which a machine without accelerators hosts."""
        for name, target in self.targets.items():
            if target.runtime in ("onnxruntime", "openvino") and target.instance_types:
                return name
        return None

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Returns the candidates of the hosted target."""
        return self.hosted.instance_types

    def triton_on(self, instance_type: str) -> str | None:
        """Returns the version of the Triton image that serves on this type; None for an image without one."""
        if isinstance(self.hosting, SageMakerEndpointHosting):
            return self.hosting.triton_on(instance_type, self.hosting.image_uri)
        return default_version(instance_type)

    def failing_hosts(self, instance_types: Iterable[str] | None = None) -> list[str]:
        """Returns the types, by default the candidates, whose default GPU driver does not start the image."""
        types = self.instance_types if instance_types is None else instance_types
        return [name for name in dict.fromkeys(types) if starts(self.triton_on(name), name) is False]

    @property
    def latency_objective(self) -> LatencyObjective:
        """Returns `[objective]` with what the hosted target replaces of it.

        Raises `UsageError` for a batch, whose objective is a throughput.
        """
        if not isinstance(self.objective, LatencyObjective):
            raise UsageError(
                f"workloads/{self.name}/workload.toml: objective: is a throughput, because it is a batch. "
                "Load tests, endpoints and their alarms need a latency objective (percentile, model_latency_ms, "
                "peak_invocations_per_minute)."
            )
        own = self.hosted.objective
        return own.in_place_of(self.objective) if own else self.objective


def _variants_inherit_serving(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fills what a variant's `serving` leaves out from the workload's. Faults are left for the validation to tell."""
    match table:
        case {"serving": dict() as common, "variants": dict() as variants}:
            return {**table, "variants": {name: inherited(variant, common) for name, variant in variants.items()}}
    return table


def _misplaced(target: Target, serving: Serving) -> str | None:
    if isinstance(target, NeuronTarget):
        return (
            "are Triton's, and NeuronCores are shared by the target's placement." if serving.instance_groups else None
        )
    on_gpu = any(hardware(name) == "GPU" for name in target.instance_types)
    for group in serving.instance_groups:
        if group.kind == "KIND_CPU" and isinstance(target, TensorRtTarget):
            return "got KIND_CPU, where a TensorRT engine does not run."
        if (group.kind == "KIND_GPU" or group.gpus) and not on_gpu:
            return "got KIND_GPU, and no instance type of the target has one."
        for name in target.instance_types:
            shape = instance_shape(name)
            if shape and shape.gpus and group.gpus and max(group.gpus) >= shape.gpus:
                return f"got gpus {list(group.gpus)}, and {name} has {shape.gpus}, counted from 0."
    return None
