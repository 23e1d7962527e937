"""A table of broken archives: each is a good miniature repository with one fault, or a good one where it cannot run."""

import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from typing import Any

from model_build.lint import NO_HOST_AMI, RuntimeContext
from tests.model_build.lint.good_archives import (
    ENGINES,
    ENVIRONMENT,
    ON_CPU,
    ON_GPU,
    SCORE,
    SCORING,
    TORCH_SAVE,
    Device,
    Entry,
    Link,
    Tree,
    plan,
)

SCORE_CONFIG, PIPELINE_CONFIG, TOKENISE_CONFIG = "score/config.pbtxt", "pipeline/config.pbtxt", "tokenise/config.pbtxt"
ENCODER_CONFIG, HEAD_CONFIG = "encoder/config.pbtxt", "head/config.pbtxt"


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    base: Tree
    plant: Callable[[Tree], None]
    code: str
    where: str
    severity: str = "error"
    known: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the context."""
    on_disk: bool = True
    """Whether a folder can have it, too."""
    refused: bool = False
    """Whether a Triton without a GPU refuses to start with it."""

    @property
    def tree(self) -> Tree:
        tree = dict(self.base)
        self.plant(tree)
        return tree

    @property
    def context(self) -> RuntimeContext:
        usual = ON_GPU if ENCODER_CONFIG in self.base else ON_CPU
        return replace_fields(usual, **self.known)


def unchanged(tree: Tree) -> None:
    """The fault is in the context."""


def replace(file: str, old: str, new: str) -> Callable[[Tree], None]:
    def plant(tree: Tree) -> None:
        text = tree[file]
        assert isinstance(text, bytes)
        assert old.encode() in text, f"{old!r} is not in {file}"
        tree[file] = text.replace(old.encode(), new.encode())

    return plant


def add(file: str, entry: Entry) -> Callable[[Tree], None]:
    return lambda tree: tree.update({file: entry})


def drop(*files: str) -> Callable[[Tree], None]:
    def plant(tree: Tree) -> None:
        for file in files:
            del tree[file]

    return plant


def move(old: str, new: str) -> Callable[[Tree], None]:
    """Every path that begins with `old`."""

    def plant(tree: Tree) -> None:
        for file in [file for file in tree if file.startswith(old)]:
            tree[new + file.removeprefix(old)] = tree.pop(file)

    return plant


def env(**changes: str | None) -> dict[str, Any]:
    """The environment with other values; None drops a variable."""
    names = {f"SAGEMAKER_TRITON_{name}": value for name, value in changes.items()}
    return {"environment": {name: value for name, value in (ENVIRONMENT | names).items() if value is not None}}


T4_PLAN = 'cc_model_filenames { key: "7.5" value: "t4.plan" }\n'
A10G_PLAN = 'cc_model_filenames { key: "8.6" value: "a10g.plan" }\n'

FAULTS = [
    # Members that do not belong into an archive.
    Fault(
        name="a name that climbs out of the archive",
        base=SCORING,
        plant=add("../.bashrc", b"true"),
        code="escaping-member",
        where="../.bashrc",
        on_disk=False,
    ),
    Fault(
        name="an absolute name",
        base=SCORING,
        plant=add("/etc/profile", b"true"),
        code="escaping-member",
        where="/etc/profile",
        on_disk=False,
    ),
    Fault(
        name="a link that points out",
        base=SCORING,
        plant=add("score/1/weights.bin", Link("../../../weights.bin")),
        code="escaping-member",
        where="score/1/weights.bin",
    ),
    Fault(
        name="a hard link that points out",
        base=SCORING,
        plant=add("score/1/weights.bin", Link("/etc/passwd", tarfile.LNKTYPE)),
        code="escaping-member",
        where="score/1/weights.bin",
        on_disk=False,
    ),
    Fault(
        name="a link to nothing",
        base=SCORING,
        plant=add("score/1/weights.bin", Link("gone.bin")),
        code="dangling-link",
        where="score/1/weights.bin",
    ),
    Fault(
        name="a pipe",
        base=SCORING,
        plant=add("score/1/pipe", Device()),
        code="device-member",
        where="score/1/pipe",
    ),
    Fault(
        name="a character device",
        base=SCORING,
        plant=add("score/1/null", Device(tarfile.CHRTYPE)),
        code="device-member",
        where="score/1/null",
        on_disk=False,
    ),
    Fault(
        name="a name as Windows writes it",
        base=SCORING,
        plant=add("score\\1\\notes.txt", b""),
        code="odd-path",
        where="score\\1\\notes.txt",
        severity="warning",
    ),
    Fault(
        name="what macOS leaves behind",
        base=SCORING,
        plant=lambda tree: tree.update({"__MACOSX/score/._model.py": b"", "score/1/._model.py": b""}),
        code="litter",
        where="__MACOSX",
        severity="warning",
    ),
    Fault(
        name="a pickle",
        base=SCORING,
        plant=add("score/1/labels.pkl", b"\x80\x04."),
        code="pickle",
        where="score/1/labels.pkl",
        severity="warning",
    ),
    Fault(
        name="weights that torch.save wrote",
        base=SCORING,
        plant=add("score/1/pytorch_model.bin", TORCH_SAVE),
        code="pickle",
        where="score/1/pytorch_model.bin",
        severity="warning",
    ),
    # Layout.
    Fault(
        name="the model's own folder is missing",
        base={file.removeprefix("score/"): entry for file, entry in SCORING.items() if file.startswith("score/")},
        plant=unchanged,
        code="config-at-root",
        where="config.pbtxt",
        known=env(DEFAULT_MODEL_NAME=None),
    ),
    Fault(
        name="one folder too many",
        base=SCORING,
        plant=move("", "model_repository/"),
        code="wrapper-folder",
        where="model_repository",
    ),
    Fault(
        name="the path of the machine it was packed on",
        base=SCORING,
        plant=move("", "home/me/model_repository/"),
        code="wrapper-folder",
        where="home/me/model_repository",
    ),
    Fault(name="nothing in it", base={}, plant=unchanged, code="no-model", where="/"),
    Fault(
        name="files without a folder",
        base={},
        plant=add("model.onnx", b"onnx"),
        code="no-model",
        where="/",
    ),
    Fault(
        name="a folder that is no model",
        base=SCORING,
        plant=add("code/inference.py", b""),
        code="stray-folder",
        where="code",
        severity="warning",
    ),
    Fault(
        name="a version that is called v1",
        base=SCORING,
        plant=move("score/1/", "score/v1/"),
        code="no-version",
        where="score",
        refused=True,
    ),
    Fault(
        name="an ensemble without its empty version",
        base=SCORING,
        plant=drop("pipeline/1/"),
        code="no-version",
        where="pipeline",
        refused=True,
    ),
    Fault(
        name="a version policy that chooses nothing",
        base=SCORING,
        plant=replace(SCORE_CONFIG, "dynamic", "version_policy { specific { versions: [ 2 ] } }\ndynamic"),
        code="no-version",
        where="score/config.pbtxt:7: version_policy",
        refused=True,
    ),
    Fault(
        name="an empty version",
        base=SCORING,
        plant=lambda tree: (drop("score/1/model.py")(tree), add("score/1/", None)(tree))[0],
        code="missing-model-file",
        where="score/1/model.py",
    ),
    Fault(
        name="a model file under another name",
        base=ENGINES,
        plant=move("head/1/model.pt", "head/1/head.pt"),
        code="missing-model-file",
        where="head/1/model.pt",
    ),
    Fault(
        name="a plan that is named and not there",
        base=ENGINES,
        plant=drop("encoder/1/a10g.plan"),
        code="missing-model-file",
        where="encoder/1/a10g.plan",
    ),
    # config.pbtxt by itself.
    Fault(
        name="no config.pbtxt",
        base=SCORING,
        plant=drop(SCORE_CONFIG),
        code="no-config",
        where="score/config.pbtxt",
        severity="warning",
        refused=True,
    ),
    Fault(
        name="a field that the schema does not have",
        base=SCORING,
        plant=replace(SCORE_CONFIG, "max_batch_size: 8", "max_batchsize: 8"),
        code="unparsable-config",
        where="score/config.pbtxt:4",
        refused=True,
    ),
    Fault(
        name="a config.pbtxt of two megabytes",
        base=SCORING,
        plant=add(SCORE_CONFIG, b"#" * (2 << 20)),
        code="config-too-large",
        where="score/config.pbtxt",
    ),
    Fault(
        name="another name than the folder",
        base=SCORING,
        plant=replace(SCORE_CONFIG, '"score"', '"scorer"'),
        code="name-mismatch",
        where="score/config.pbtxt:2: name",
        refused=True,
    ),
    Fault(
        name="a model folder with a space",
        base={"my score/1/model.py": SCORE},
        plant=add("my score/config.pbtxt", b'backend: "python"\nmax_batch_size: 0\n'),
        code="odd-path",
        where="my score",
        known=env(DEFAULT_MODEL_NAME=None),
    ),
    Fault(
        name="max_batch_size left to the default",
        base={file: entry for file, entry in SCORING.items() if file.startswith("score/")},
        plant=lambda tree: tree.update({SCORE_CONFIG: b'name: "score"\nbackend: "python"\n'}),
        code="max-batch-size-unset",
        where="score/config.pbtxt: max_batch_size",
        severity="warning",
        known=env(DEFAULT_MODEL_NAME="score"),
    ),
    Fault(
        name="a backend that does not exist",
        base=SCORING,
        plant=replace(SCORE_CONFIG, '"python"', '"pyhton"'),
        code="unknown-backend",
        where="score/config.pbtxt:3: backend",
        refused=True,
    ),
    Fault(
        name="a platform that does not exist",
        base=ENGINES,
        plant=replace(HEAD_CONFIG, '"pytorch_libtorch"', '"torchscript"'),
        code="unknown-backend",
        where="head/config.pbtxt:2: platform",
    ),
    Fault(
        name="a backend that contradicts the platform",
        base=ENGINES,
        plant=replace(HEAD_CONFIG, '"pytorch_libtorch"', '"onnxruntime_onnx" backend: "pytorch"'),
        code="unknown-backend",
        where="head/config.pbtxt:2: platform",
    ),
    Fault(
        name="dynamic batching without a batch",
        base={file: entry for file, entry in SCORING.items() if file.startswith("score/")},
        plant=lambda tree: tree.update(
            {SCORE_CONFIG: b'name: "score"\nbackend: "python"\nmax_batch_size: 0\ndynamic_batching { }\n'}
        ),
        code="batching-without-batch",
        where="score/config.pbtxt:4: dynamic_batching",
        severity="warning",
        known=env(DEFAULT_MODEL_NAME="score"),
    ),
    Fault(
        name="a preferred batch size above the largest",
        base=SCORING,
        plant=replace(SCORE_CONFIG, "[ 4, 8 ]", "[ 4, 16 ]"),
        code="batch-size",
        where="score/config.pbtxt:8: dynamic_batching.preferred_batch_size",
        refused=True,
    ),
    Fault(
        name="an output without dimensions",
        base={file: entry for file, entry in SCORING.items() if file.startswith("score/")},
        plant=replace(SCORE_CONFIG, "TYPE_FP32 dims: [ 1 ]", "TYPE_FP32"),
        code="incomplete-tensor",
        where="score/config.pbtxt:6: output[0]",
        known=env(DEFAULT_MODEL_NAME="score"),
        refused=True,
    ),
    Fault(
        name="warm-up data that is not there",
        base=SCORING,
        plant=drop("tokenise/warmup/query"),
        code="warmup-file",
        where="tokenise/warmup/query",
        refused=True,
    ),
    Fault(
        name="a warm-up request without an input",
        base=SCORING,
        plant=replace(TOKENISE_CONFIG, 'key: "TEXT"', 'key: "TXT"'),
        code="warmup-request",
        where="tokenise/config.pbtxt:7: model_warmup[0]",
        refused=True,
    ),
    Fault(
        name="a warm-up batch that is too large",
        base=SCORING,
        plant=replace(TOKENISE_CONFIG, "  batch_size: 1", "  batch_size: 9"),
        code="warmup-request",
        where="tokenise/config.pbtxt:7: model_warmup[0]",
        refused=True,
    ),
    Fault(
        name="a Python environment that was not packed",
        base=SCORING,
        plant=replace(
            SCORE_CONFIG,
            "dynamic",
            'parameters { key: "EXECUTION_ENV_PATH" '
            'value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }\ndynamic',
        ),
        code="execution-environment",
        where="score/config.pbtxt:7: parameters EXECUTION_ENV_PATH",
        refused=True,
    ),
    Fault(
        name="a state dict for a TorchScript model",
        base=ENGINES,
        plant=add("head/1/model.pt", TORCH_SAVE),
        code="not-torchscript",
        where="head/1/model.pt",
    ),
    # The ensemble.
    Fault(
        name="a step that calls a model that is not there",
        base=SCORING,
        plant=drop(SCORE_CONFIG, "score/1/model.py"),
        code="ensemble-model",
        where="pipeline/config.pbtxt:14: ensemble_scheduling.step[1]",
        refused=True,
    ),
    Fault(
        name="a step that maps an input that is not there",
        base=SCORING,
        plant=replace(
            PIPELINE_CONFIG, 'key: "IDS" value: "ids" }\n      output', 'key: "ID" value: "ids" }\n      output'
        ),
        code="ensemble-tensor",
        where="pipeline/config.pbtxt:17: ensemble_scheduling.step[1].input_map",
        refused=True,
    ),
    Fault(
        name="a step that maps an output that is not there",
        base=SCORING,
        plant=replace(PIPELINE_CONFIG, 'key: "SCORE"', 'key: "SCORES"'),
        code="ensemble-tensor",
        where="pipeline/config.pbtxt:18: ensemble_scheduling.step[1].output_map",
        refused=True,
    ),
    Fault(
        name="types that differ between two steps",
        base=SCORING,
        plant=replace(SCORE_CONFIG, "TYPE_INT64", "TYPE_INT32"),
        code="ensemble-type",
        where="pipeline/config.pbtxt:14: ensemble_scheduling.step[1]",
        refused=True,
    ),
    Fault(
        name="shapes that differ between two steps",
        base=SCORING,
        plant=replace(SCORE_CONFIG, "TYPE_INT64 dims: [ -1 ]", "TYPE_INT64 dims: [ -1, 2 ]"),
        code="ensemble-type",
        where="pipeline/config.pbtxt:14: ensemble_scheduling.step[1]",
        refused=True,
    ),
    Fault(
        name="an ensemble that takes larger batches than its step",
        base=SCORING,
        plant=lambda tree: (
            replace(SCORE_CONFIG, "max_batch_size: 8", "max_batch_size: 4")(tree),
            replace(SCORE_CONFIG, "[ 4, 8 ]", "[ 4 ]")(tree),
        )[0],
        code="ensemble-batch-size",
        where="pipeline/config.pbtxt:3: max_batch_size",
        refused=True,
    ),
    Fault(
        name="a tensor that nothing makes",
        base=SCORING,
        plant=replace(
            PIPELINE_CONFIG, 'input_map { key: "IDS" value: "ids" }', 'input_map { key: "IDS" value: "idz" }'
        ),
        code="ensemble-unproduced",
        where="pipeline/config.pbtxt:17: ensemble_scheduling.step[1].input_map",
        refused=True,
    ),
    Fault(
        name="steps that wait for each other",
        base={
            **SCORING,
            TOKENISE_CONFIG: SCORING[TOKENISE_CONFIG].replace(  # type: ignore[union-attr]
                b"input [", b'input [ { name: "AGAIN" data_type: TYPE_FP32 dims: [ 1 ] optional: true },'
            ),
        },
        plant=replace(
            PIPELINE_CONFIG, 'value: "TEXT" }', 'value: "TEXT" }\n      input_map { key: "AGAIN" value: "RESULT" }'
        ),
        code="ensemble-cycle",
        where="pipeline/config.pbtxt:8: ensemble_scheduling.step[0]",
        refused=True,
    ),
    Fault(
        name="an input that no step reads",
        base=SCORING,
        plant=replace(PIPELINE_CONFIG, "input [", 'input [ { name: "LIMIT" data_type: TYPE_INT32 dims: [ 1 ] },'),
        code="ensemble-unused",
        where="pipeline/config.pbtxt:4: input[0]",
        refused=True,
    ),
    Fault(
        name="two steps that make the same tensor",
        base=SCORING,
        plant=replace(
            PIPELINE_CONFIG,
            "  ]\n",
            '    ,{ model_name: "score" input_map { key: "IDS" value: "ids" } '
            'output_map { key: "SCORE" value: "RESULT" } }\n  ]\n',
        ),
        code="ensemble-tensor",
        where="pipeline/config.pbtxt:20: ensemble_scheduling.step[2].output_map",
        refused=True,
    ),
    Fault(
        name="an ensemble with an instance group",
        base=SCORING,
        plant=replace(PIPELINE_CONFIG, "max_batch", "instance_group [ { kind: KIND_CPU } ]\nmax_batch"),
        code="ensemble-setting",
        where="pipeline/config.pbtxt:3: instance_group",
        refused=True,
    ),
    Fault(
        name="an ensemble with a backend",
        base=SCORING,
        plant=replace(PIPELINE_CONFIG, "max_batch", 'backend: "python"\nmax_batch'),
        code="ensemble-setting",
        where="pipeline/config.pbtxt:3: backend",
        refused=True,
    ),
    # Where it will run.
    Fault(
        name="no default model of several",
        base=SCORING,
        plant=unchanged,
        code="default-model",
        where="environment: SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
        known=env(DEFAULT_MODEL_NAME=None),
    ),
    Fault(
        name="a default model that is not there",
        base=SCORING,
        plant=unchanged,
        code="default-model",
        where="environment: SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
        known=env(DEFAULT_MODEL_NAME="scoring"),
    ),
    Fault(
        name="a model that is never loaded",
        base=SCORING,
        plant=lambda tree: tree.update(
            {"helper/config.pbtxt": b'backend: "python"\nmax_batch_size: 0\n', "helper/1/model.py": SCORE}
        ),
        code="model-not-loaded",
        where="helper",
        severity="warning",
    ),
    Fault(
        name="a decoupled model",
        base=SCORING,
        plant=replace(SCORE_CONFIG, "dynamic", "model_transaction_policy { decoupled: true }\ndynamic"),
        code="decoupled",
        where="score/config.pbtxt:7: model_transaction_policy.decoupled",
    ),
    Fault(
        name="KIND_GPU on an instance without one",
        base=SCORING,
        plant=replace(SCORE_CONFIG, "KIND_CPU", "KIND_GPU"),
        code="gpu-on-cpu",
        where="score/config.pbtxt:10: instance_group[0]",
        refused=True,
    ),
    Fault(
        name="TensorRT in the image for CPUs",
        base={file: entry for file, entry in ENGINES.items() if file.startswith("encoder/")},
        plant=replace(ENCODER_CONFIG, "instance_group [ { kind: KIND_GPU count: 1 } ]\n", ""),
        code="gpu-on-cpu",
        where="encoder/config.pbtxt: backend",
        known={"image": "25.09-py3-cpu", **env(DEFAULT_MODEL_NAME="encoder")},
    ),
    Fault(
        name="a GPU that nothing uses",
        base=SCORING,
        plant=unchanged,
        code="cpu-on-gpu",
        where="score/config.pbtxt:10: instance_group",
        severity="warning",
        known={
            "image": "25.09",
            "instance_types": ("ml.g5.xlarge",),
            "host_ami": "al2023-ami-sagemaker-inference-gpu-4-1",
        },
    ),
    Fault(
        name="a GPU image on the host that SageMaker takes by default",
        base=ENGINES,
        plant=unchanged,
        code="host-ami",
        where="endpoint configuration: InferenceAmiVersion",
        known={"host_ami": NO_HOST_AMI},
    ),
    Fault(
        name="a GPU image on the host of an older CUDA",
        base=ENGINES,
        plant=unchanged,
        code="host-ami",
        where="endpoint configuration: InferenceAmiVersion",
        known={"host_ami": "al2-ami-sagemaker-inference-gpu-3-1"},
    ),
    Fault(
        name="more Python model instances than Docker's shared memory",
        base=SCORING,
        plant=replace(SCORE_CONFIG, "count: 2", "count: 4"),
        code="shared-memory",
        where="environment: SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE",
        severity="warning",
    ),
    Fault(
        name="more Python model instances than the measured shared memory",
        base=SCORING,
        plant=unchanged,
        code="shared-memory",
        where="environment: SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE",
        known={"shared_memory_bytes": 48 << 20, **env(SHM_DEFAULT_BYTE_SIZE="16777217")},
    ),
    Fault(
        name="shared memory in megabytes",
        base=SCORING,
        plant=unchanged,
        code="shared-memory",
        where="environment: SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE",
        known=env(SHM_DEFAULT_BYTE_SIZE="16M"),
    ),
    Fault(
        name="verbose logging",
        base=SCORING,
        plant=unchanged,
        code="verbose-logging",
        where="environment: SAGEMAKER_TRITON_LOG_VERBOSE",
        severity="warning",
        known=env(LOG_VERBOSE=None),
    ),
    # TensorRT.
    Fault(
        name="no plan for one of the GPUs",
        base=ENGINES,
        plant=lambda tree: (replace(ENCODER_CONFIG, A10G_PLAN, "")(tree), drop("encoder/1/a10g.plan")(tree))[0],
        code="plan-gpu",
        where="encoder/config.pbtxt:6: cc_model_filenames",
    ),
    Fault(
        name="a plan of unknown origin for one of the GPUs",
        base=ENGINES,
        plant=lambda tree: (
            replace(ENCODER_CONFIG, A10G_PLAN, "")(tree),
            move("encoder/1/a10g.plan", "encoder/1/model.plan")(tree),
        )[0],
        code="plan-gpu",
        where="encoder/config.pbtxt:6: cc_model_filenames",
        severity="warning",
    ),
    Fault(
        name="one plan for two GPUs",
        base=ENGINES,
        plant=lambda tree: (
            replace(ENCODER_CONFIG, T4_PLAN + A10G_PLAN, "")(tree),
            move("encoder/1/a10g.plan", "encoder/1/model.plan")(tree),
            drop("encoder/1/t4.plan")(tree),
        )[0],
        code="plan-gpu",
        where="encoder/config.pbtxt: cc_model_filenames",
    ),
    Fault(
        name="the plan of another GPU",
        base=ENGINES,
        plant=lambda tree: (
            replace(ENCODER_CONFIG, T4_PLAN + A10G_PLAN, "")(tree),
            move("encoder/1/a10g.plan", "encoder/1/model.plan")(tree),
            drop("encoder/1/t4.plan")(tree),
        )[0],
        code="plan-gpu",
        where="encoder/config.pbtxt: cc_model_filenames",
        known={"instance_types": ("ml.g4dn.xlarge",), "toolchain": {"compute_capability": "8.6"}},
    ),
    Fault(
        name="a plan of another TensorRT",
        base=ENGINES,
        plant=add("encoder/1/t4.plan", plan(10, 11, 0, 33)),
        code="plan-version",
        where="encoder/1/t4.plan",
    ),
    Fault(
        name="a plan of another build of the same TensorRT",
        base=ENGINES,
        plant=add("encoder/1/t4.plan", plan(10, 13, 3, 12)),
        code="plan-version",
        where="encoder/1/t4.plan",
    ),
    Fault(
        name="a plan of another TensorRT, as the build recorded it",
        base={**ENGINES, "encoder/1/t4.plan": b"ftrt\x01" + bytes(40)},
        plant=unchanged,
        code="plan-version",
        where="encoder/1/t4.plan",
        known={"toolchain": {"tensorrt": "10.11.0.33"}, "tensorrt_version": "10.13.3"},
    ),
    Fault(
        name="an ONNX file under a plan's name",
        base=ENGINES,
        plant=add("encoder/1/t4.plan", b"\x08\x08\x12\x07pytorch"),
        code="not-a-plan",
        where="encoder/1/t4.plan",
    ),
]
