"""Checks the backend that serves a model and the file that it loads. Pure.

Names and default files are those of Triton's core (src/constants.h) and its backends' repositories. An unlisted backend
is accepted if the archive contains its library.
"""

from collections.abc import Iterator, Mapping
from posixpath import join

from model_build.lint.contents import Contents
from model_build.lint.finding import Finding, FindingPlace, finding, listing
from model_build.lint.layout import PackedModel, PackedRepository

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
COMPLETED = ("python", "tensorrt", "onnxruntime", "openvino")
"""Backends for which Triton derives a missing config.pbtxt."""
OTHER_BACKENDS = ("tensorflow", "dali", "fil", "identity", "repeat", "square", "tensorrtllm", "vllm")
ALLOWED = f"backend {', '.join([*FILES, *OTHER_BACKENDS])}; platform {', '.join(PLATFORMS)}, ensemble"


def backend_of(model: PackedModel, contents: Contents) -> str | None:
    """Returns the backend as Triton completes it; None for an ensemble and if no readable file names one."""
    config = model.config
    if not model.readable or model.is_ensemble:
        return None
    if config.backend or config.platform:
        return str(config.backend or "") or PLATFORMS.get(config.platform)
    if config.default_model_filename:
        return _by_file([config.default_model_filename])
    return _by_file(contents.children(join(model.name, model.versions[0])) if model.versions else [])


def model_file(model: PackedModel, backend: str | None) -> str | None:
    """Returns the file that every version needs; None if each GPU has its own or no rule is known."""
    config = model.config
    if config.runtime.endswith(".py"):
        return None
    default = "model.pt2" if config.platform == "torch_aoti" else FILES.get(backend or "")
    return default and str(config.default_model_filename or default)


def check_backend(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    config, contents = model.config, repository.contents
    if not model.readable or model.is_ensemble:
        return
    backend = backend_of(model, contents)
    if not model.has_file:
        if model.versions:
            rule = "no-config/completed" if backend in COMPLETED else "no-config/other"
            yield finding(rule, FindingPlace(model.file), name=model.name)
    elif backend is None or (backend not in (*FILES, *OTHER_BACKENDS) and not _has_library(model, backend, contents)):
        key = "platform" if config.platform and not config.backend else "backend"
        yield finding("unknown-backend", model.place(key), key=key, got=backend or config.platform, allowed=ALLOWED)


def check_model_files(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    """Checks the model's file in every version that Triton loads."""
    expected = model_file(model, backend_of(model, repository.contents))
    if expected is None:
        return
    named = sorted(model.config.cc_model_filenames.items()) or [("", expected)]
    for version in model.versions:
        folder = join(model.name, version)
        for capability, name in named:
            if not repository.contents.exists(join(folder, name)):
                yield finding(
                    f"missing-model-file/{'capability' if capability else 'backend'}",
                    FindingPlace(join(folder, name)),
                    name=name,
                    capability=capability,
                    present=f"the folder holds {listing(repository.contents.children(folder)) or 'nothing'}",
                )


def _by_file(names: list[str]) -> str | None:
    return next((backend for backend, file in FILES.items() if file in names), None)


def _has_library(model: PackedModel, backend: str, contents: Contents) -> bool:
    folders = [model.name, *(join(model.name, version) for version in model.versions)]
    return any(contents.file(join(folder, f"libtriton_{backend}.so")) for folder in folders)
