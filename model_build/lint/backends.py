"""Checks the backend that serves a model and the file it loads. Pure.

Names and default files are those of Triton's core (src/constants.h) and its backends' repositories. A backend that is
not listed is served all the same where the archive brings its library.
"""

from collections.abc import Mapping

from model_build.lint.contents import Contents, join
from model_build.lint.finding import Finding
from model_build.lint.layout import Model
from model_build.lint.model_config import ModelConfig

FILES: Mapping[str, str] = {
    "tensorrt": "model.plan",
    "onnxruntime": "model.onnx",
    "pytorch": "model.pt",
    "python": "model.py",
    "openvino": "model.xml",
}
PLATFORMS: Mapping[str, str] = {
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "libtorch": "pytorch",
    "torch_aoti": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
}
# Those whose platform Triton compares with the backend; a Python model may have any.
PAIRED = ("tensorrt", "onnxruntime", "pytorch", "tensorflow")
OTHER_BACKENDS = ("tensorflow", "dali", "fil", "identity", "repeat", "square", "tensorrtllm", "vllm")
MADE_UP = "Triton makes one up from the model's file, with a maximum batch size of its own and no dynamic batching."
COMPLETED: Mapping[str, str] = {
    "tensorrt": MADE_UP,
    "onnxruntime": MADE_UP,
    "openvino": MADE_UP,
    "python": "Unless model.py has auto_complete_config, the model has no inputs then and refuses every request.",
}


def backend_of(model: Model, contents: Contents) -> str | None:
    """Returns the backend as Triton completes it; None for an ensemble and where nothing readable tells."""
    if model.config is None and model.config_written:
        return None
    config = model.config or ModelConfig()
    if config.ensemble:
        return None
    if config.backend or config.platform:
        return config.backend or PLATFORMS.get(config.platform)
    if config.default_model_filename:
        return _by_file([config.default_model_filename])
    return _by_file(contents.children(join(model.name, model.versions[0])) if model.versions else [])


def model_file(model: Model, backend: str | None) -> str | None:
    """Returns the file that every version needs; None where each GPU has its own or no rule is known."""
    config = model.config or ModelConfig()
    if config.runtime.endswith(".py"):
        return None
    if config.platform == "torch_aoti":
        return config.default_model_filename or "model.pt2"
    default = FILES.get(backend or "")
    return default and (config.default_model_filename or default)


def check_backend(model: Model, contents: Contents) -> list[Finding]:
    config = model.config
    if config is None:
        return [] if model.config_written or not model.versions else [_no_config(model, contents)]
    if config.ensemble:
        return []
    backend = backend_of(model, contents)
    if backend is None:
        return [_unknown(model, config)]
    if config.backend in PAIRED and config.platform and PLATFORMS.get(config.platform) != backend:
        return [_contradiction(model, config)]
    known = backend in FILES or backend in OTHER_BACKENDS
    return [] if known or _brings_library(model, backend, contents) else [_unknown(model, config)]


def check_files(model: Model, contents: Contents) -> list[Finding]:
    """Checks the model's file in every version that is loaded."""
    expected = model_file(model, backend_of(model, contents))
    if expected is None:
        return []
    named = model.config.cc_model_filenames if model.config else {}
    findings = []
    for version in model.versions:
        folder = join(model.name, version)
        findings += [
            _missing(model, folder, name, contents, f"cc_model_filenames names it for compute capability {capability}")
            for capability, name in sorted(named.items())
            if not contents.exists(join(folder, name))
        ]
        if not named and not contents.exists(join(folder, expected)):
            findings.append(_missing(model, folder, expected, contents, "the backend loads it"))
    return findings


def _by_file(names: list[str]) -> str | None:
    return next((backend for backend, file in FILES.items() if file in names), None)


def _brings_library(model: Model, backend: str, contents: Contents) -> bool:
    library = f"libtriton_{backend}.so"
    folders = [model.name, *(join(model.name, version) for version in model.versions)]
    return any(contents.file(join(folder, library)) for folder in folders)


def _no_config(model: Model, contents: Contents) -> Finding:
    backend = backend_of(model, contents)
    return Finding(
        code="no-config",
        severity="warning" if backend in COMPLETED else "error",
        what=f"The model '{model.name}' has no config.pbtxt.",
        file=model.config_file,
        why=COMPLETED.get(backend or "", "Triton cannot make one up for a model of this kind and does not load it."),
        fix=f"Write {model.config_file} with name, backend, max_batch_size, input and output.",
    )


def _unknown(model: Model, config: ModelConfig) -> Finding:
    got = config.backend or config.platform
    key = "backend" if config.backend or not config.platform else "platform"
    return Finding(
        code="unknown-backend",
        severity="error",
        what=f"'{got}' is no {key} of the Triton image." if got else "Neither backend nor platform is set.",
        file=model.config_file,
        line=model.line(key),
        key=key,
        why=f"Triton looks for libtriton_{got}.so in the image and in the model's folder, and loads nothing without it."
        if config.backend
        else "Triton does not know what to load the model with.",
        fix=f"Allowed: backend {', '.join([*FILES, *OTHER_BACKENDS])}; platform {', '.join(PLATFORMS)}, ensemble; or "
        "pack the backend's library beside the model.",
    )


def _contradiction(model: Model, config: ModelConfig) -> Finding:
    return Finding(
        code="unknown-backend",
        severity="error",
        what=f"backend '{config.backend}' and platform '{config.platform}' contradict each other.",
        file=model.config_file,
        line=model.line("platform"),
        key="platform",
        why="Triton refuses the pair with 'unexpected platform and backend pair'.",
        fix="Write the backend alone.",
    )


def _missing(model: Model, folder: str, name: str, contents: Contents, reason: str) -> Finding:
    present = [other for other in contents.children(folder) if other != "__pycache__"]
    there = f"the folder holds {', '.join(present[:5])}" if present else "the folder is empty"
    return Finding(
        code="missing-model-file",
        severity="error",
        what=f"{name} is missing: {reason}, and {there}.",
        file=join(folder, name),
        why="Triton does not load the version, and the endpoint never answers /ping.",
        fix="Rename or add the file, or name it in default_model_filename.",
    )
