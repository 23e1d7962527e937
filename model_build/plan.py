"""Plans a build of a target or variant.

It reads the workload and its checkpoint (a remote one is fetched into the cache). It writes nothing into the target's
folder and needs no torch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_build import compiler_calls
from model_build.checkpoint import Checkpoint, resolve, sentence_transformers, torchscript_file
from model_build.checkpoint.encoder_config import inputs_for
from model_build.compile_inputs import CALIBRATION_ROWS, MIN_CALIBRATION_ROWS, CompileInputs
from model_build.encoder import ensemble as encoder
from model_build.matrix import network_refusal, task_refusal
from model_build.neuron import arguments
from model_build.neuron import package as neuron
from model_build.tensorrt.profiles import timed_rows
from model_build.text2text import repository as text2text
from model_build.triton import repository
from model_build.triton.config_pbtxt import render
from model_build.triton.repository import Content
from model_build.triton.several import OtherModel, other_models, router
from workloads import (
    Example,
    Model,
    NeuronTarget,
    QuestionAnswering,
    RandomWeights,
    Row,
    Serving,
    Target,
    TensorRtTarget,
    TextToText,
    TokenClassification,
    UsageError,
    Variant,
    Workload,
    WorkloadFolder,
    artifact_file,
)
from workloads.errors import InvalidDocument

TIMING_CACHES = Path("build/timing_caches")
RANDOM_EXAMPLES = 64
"""Examples for random weights, whose answers are meaningless: a few compare the arithmetic as well as all."""
CONFIG = "config.pbtxt"
CONFIGURATION = (CONFIG, "server.json")
"""The files that configure how the model is served."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildPlan:
    root: Path
    source: WorkloadFolder
    model: Model
    """The workload's model, with the inputs of its checkpoint if workload.toml does not name them."""
    variant_name: str
    variant: Variant
    target: Target
    checkpoint: Checkpoint
    examples: tuple[Example, ...]
    others: tuple[OtherModel, ...]
    """Builds of other workloads that the archive also has."""
    warm_up: Row
    """The request that a model answers before it is ready: the longest payload. It is part of the archive; labelled
    examples are not, so that editing them does not change it."""

    @property
    def workload(self) -> Workload:
        return self.source.workload

    @property
    def default_model(self) -> str:
        """The Triton model that /invocations answers with."""
        return f"{self.workload.name}_router" if self.others else self.workload.name

    @property
    def builds(self) -> Path:
        """The root of the build/ folder."""
        return self.source.builds(self.root)

    @property
    def artifact(self) -> Path:
        return artifact_file(self.builds, self.workload.name, self.variant_name)

    @property
    def folder(self) -> Path:
        return self.artifact.parent

    @property
    def archive(self) -> Path:
        return self.folder / "model.tar.gz"

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    @property
    def compiled(self) -> Path:
        """The cache folder of the target's compiled graphs, which its variants share.

        TensorRT times engines for batches, so there only variants with the same batches share one.
        """
        batches = self.engine_serving
        timed = (
            f".{timed_rows(batches) or 1}x{batches.max_batch_size}" if isinstance(self.target, TensorRtTarget) else ""
        )
        return self.builds / "build" / self.workload.name / ".compiled" / f"{self.variant.target}{timed}"

    @property
    def compile_inputs(self) -> CompileInputs:
        return CompileInputs(
            workload=self.workload.name,
            target_name=self.variant.target,
            model=self.model,
            target=self.target,
            checkpoint=self.checkpoint,
            batches=self.engine_serving,
            calibration=tuple(example.row for example in self.examples[:CALIBRATION_ROWS]),
            timing_caches=self.root / TIMING_CACHES,
        )

    @property
    def log(self) -> Path:
        """The output of libraries during the last build or verification of the target."""
        return self.compiled / "build.log"

    @property
    def engine_serving(self) -> Serving:
        """The variant's batches, for which a TensorRT engine is built."""
        rows = timed_rows(self.variant.serving)
        return Serving(
            max_batch_size=self.variant.serving.max_batch_size,
            dynamic_batching=rows is not None,
            preferred_batch_sizes=() if rows is None else (rows,),
        )

    def contents(self, graphs: Path) -> dict[str, Content]:
        """Returns the files to pack; `graphs` is the folder of the compiled graphs, which may not exist yet."""
        name, model, serving = self.workload.name, self.model, self.variant.serving
        if isinstance(model, TextToText):
            parts = text2text.triton_models(name, model, serving, self.target, self.checkpoint, self.warm_up, graphs)
        elif isinstance(self.target, NeuronTarget):
            return neuron.contents(name, model, serving, self.target, self.checkpoint, graphs)
        else:
            parts = encoder.triton_models(name, model, serving, self.target, self.checkpoint, self.warm_up, graphs)
        return repository.contents(parts) | self._contents_of_others(render(parts[0].config))

    def _contents_of_others(self, own_config: str) -> dict[str, Content]:
        if not self.others:
            return {}
        configs = {self.workload.name: own_config}
        folders: dict[str, Content] = {}
        for other in self.others:
            configs[other.name] = (other.repository / other.name / CONFIG).read_text("utf-8")
            folders |= {path.name: path for path in sorted(other.repository.iterdir())}
        return folders | repository.contents([router(self.default_model, configs)])

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which the container serves this archive."""
        if isinstance(self.target, NeuronTarget):
            return {}
        servings = [self.variant.serving, *(other.serving for other in self.others)]
        shared_memory_mb = max(each.copy_memory_mb for each in servings)
        environment = {"SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE": str(shared_memory_mb * 2**20)}
        cache_mb = sum(each.response_cache_mb for each in servings)
        flags = [f"--cache-config=local,size={cache_mb * 2**20}"] if cache_mb else []
        if self.others:  # Triton loads only the default model, not the models that it calls
            flags += [f"--load-model={name}" for name in (self.workload.name, *(each.name for each in self.others))]
        return environment | ({"SAGEMAKER_TRITON_ADDITIONAL_ARGS": " ".join(flags)} if flags else {})

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns sentences on settings that can be built but may be unintended."""
        warnings = list(sentence_transformers.differences(self.checkpoint.folder, self.checkpoint.config, self.model))
        if isinstance(self.target, NeuronTarget):
            warning = arguments.pipeline_warning(self.target, self.checkpoint.weight_count)
            warnings += [f"targets.{self.variant.target}.{warning}"] if warning else []
        copies, threads = self.variant.serving.copies, getattr(self.target, "threads", 1)
        if copies * threads < (cores := self.target.cores or 0):
            warnings.append(
                f"serving.model_instances: {copies} × {threads} thread{'s' * (threads > 1)} for '{self.variant_name}' "
                f"leave {cores - copies * threads} of the {cores} cores of its smallest instance type idle. Leave "
                f"model_instances out, or set model_instances and threads to {cores} together."
            )
        return tuple(f"{self.source.file}: {each}" for each in warnings)

    def document(self) -> dict[str, Any]:
        """Returns the document that `plan --json` prints."""
        contents = self.contents(self.compiled / "graphs")
        return {
            "workload": self.workload.name,
            "variant": self.variant_name,
            "target": self.variant.target,
            "runtime": self.target.runtime,
            "precision": self.target.precision,
            "checkpoint": str(self.checkpoint.folder),
            "checkpoint_sha256": self.checkpoint.sha256,
            "compiler": compiler_calls.steps(self.model, self.target, self.engine_serving, self.checkpoint),
            "artifact": str(self.artifact),
            "archive": str(self.archive),
            "archive_files": sorted(name for name, content in contents.items() if content is not None),
            "environment": self.environment,
            "configuration": {name: content for name, content in contents.items() if Path(name).name in CONFIGURATION},
        }


def plan(source: WorkloadFolder, name: str, root: Path) -> BuildPlan:
    """Raises `UsageError` for a target that cannot be built, and errors of the workload's files and checkpoint."""
    variant = source.variant(name)
    target = source.target(variant.target)
    if problem := source.workload.misplaced(name):
        raise UsageError(f"{source.file}: {problem}")
    _check_runtime(source, variant.target, target)
    examples = tuple(source.evaluation())
    if isinstance(source.workload.model.checkpoint, RandomWeights):
        examples = examples[:RANDOM_EXAMPLES]
    is_measured = any(example.row.get("text") == example.label for example in examples)
    if "min_unchanged_rate" in source.workload.quality and not is_measured:
        problem = (
            f"none of its {len(examples)} pairs has a text equal to its label, so unchanged_rate cannot be measured. "
            "Leave out quality.min_unchanged_rate in workload.toml, or add such pairs."
        )
        raise InvalidDocument(source.path / "evaluation.jsonl", [problem])
    checkpoint = resolve(source, root / "build" / "checkpoints")
    model = source.workload.model
    if not isinstance(model, TextToText) and checkpoint.family is not None:
        inputs = inputs_for(model, checkpoint.encoder_config, source.file)
        model = model.model_copy(update={"inputs": inputs})
    _check_family(source, variant.target, target, checkpoint)
    if isinstance(target, NeuronTarget):
        target = arguments.with_pipeline(target, checkpoint.weight_count)
    planned = BuildPlan(
        root=root,
        source=source,
        model=model,
        variant_name=name,
        variant=variant,
        target=target,
        checkpoint=checkpoint,
        examples=examples,
        others=other_models(source, name, target, source.builds(root)),
        warm_up=max(source.payloads(), key=lambda row: sum(map(len, row.values()))),
    )
    _check_calibration(planned)
    planned.document()  # fails now, not after a long compile
    return planned


def _check_calibration(planned: BuildPlan) -> None:
    """Raises `InvalidDocument` for an evaluation that is too small to set the ranges of int8."""
    rows = len(planned.compile_inputs.calibration)
    if planned.compile_inputs.calibrates and rows < MIN_CALIBRATION_ROWS:
        problem = (
            f"has {rows} rows, and targets.{planned.variant.target} needs at least {MIN_CALIBRATION_ROWS} to calibrate "
            "int8. Add rows, or choose another precision."
        )
        raise InvalidDocument(planned.source.path / "evaluation.jsonl", [problem])


def _check_runtime(source: WorkloadFolder, name: str, target: Target) -> None:
    """Raises `UsageError` for a runtime that does not support the task."""
    task = source.workload.model.task
    if reason := task_refusal(task, target):
        raise UsageError(f"{source.file}: targets.{name}.runtime: '{target.runtime}' is not built for {task}. {reason}")
    _check_preprocess(source, name, target)
    if torchscript_file(source) is not None and not isinstance(target, NeuronTarget):
        raise UsageError(
            f"{source.file}: targets.{name}.runtime: '{target.runtime}' is not built from a TorchScript file, which "
            "model.checkpoint names. Allowed: neuron, neuronx; or save the weights with `save_pretrained(…)`."
        )


def _check_family(source: WorkloadFolder, name: str, target: Target, checkpoint: Checkpoint) -> None:
    """Raises `UsageError` for a target that does not support the network of the checkpoint's family."""
    family = checkpoint.family
    if family is None or (reason := network_refusal(family, target)) is None:
        return
    refused = f"runtime: '{target.runtime}' is not built for {family.name} on this hardware"
    if target.precision == "int8":
        refused = f"precision: '{target.precision}' is not built for {family.name}"
    raise UsageError(f"{source.file}: targets.{name}.{refused}. {reason}")


def _check_preprocess(source: WorkloadFolder, name: str, target: Target) -> None:
    """Raises `UsageError` for a TorchScript tokenizer that no runtime would run."""
    model = source.workload.model
    if isinstance(model, TextToText) or model.preprocess is None:
        return
    if isinstance(model, QuestionAnswering | TokenClassification):
        raise UsageError(
            f"{source.file}: model.preprocess: {model.task} needs the position of each token in the text, which a "
            "TorchScript module does not return. Leave it out: tokenizer.json tokenises."
        )
    if model.truncation:
        raise UsageError(
            f"{source.file}: model.truncation: the module of model.preprocess decides whether it truncates. Leave "
            "truncation out."
        )
    if not isinstance(target, NeuronTarget):
        raise UsageError(
            f"{source.file}: targets.{name}.runtime: '{target.runtime}' does not tokenise by a TorchScript module, "
            "which model.preprocess names. Allowed: neuron, neuronx."
        )
