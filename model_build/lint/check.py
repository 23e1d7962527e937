"""Reads an archive once, then runs every check on it."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from posixpath import join

from model_build.lint import hosting, model_settings
from model_build.lint.backends import backend_of, check_backend, check_model_files, check_plans, model_file
from model_build.lint.contents import Contents, read
from model_build.lint.finding import Finding, FindingPlace, RuntimeContext, finding
from model_build.lint.layout import PackedModel, PackedRepository, find_models
from model_build.lint.neuron import check_neuron, is_neuron
from model_build.lint.neuron import graphs as neuron_graphs
from model_build.lint.paths import check_paths
from model_build.lint.payloads import check_requests
from model_build.lint.rejected_settings import check_settings
from workloads import UsageError

MODEL_CHECKS: Sequence[Callable[[PackedModel, PackedRepository], Iterable[Finding]]] = (
    check_backend,
    check_model_files,
    model_settings.check_name,
    model_settings.check_batching,
    model_settings.check_tensors,
    check_settings,
    model_settings.check_warmup,
    model_settings.check_environment,
    model_settings.check_torchscript,
    model_settings.check_ensemble,
    check_plans,
)
REPOSITORY_CHECKS: Sequence[Callable[[PackedRepository], Iterable[Finding]]] = (
    hosting.check_default,
    hosting.check_loaded,
    hosting.check_decoupled,
    hosting.check_devices,
    hosting.check_driver,
    hosting.check_shared_memory,
    hosting.check_verbose,
    check_requests,
)


def lint(path: Path, context: RuntimeContext) -> list[Finding]:
    """Returns every known problem of `path` in that context.

    `path` is a model.tar.gz or the folder it would be packed from: a Triton repository, or a model for Neuron. A
    damaged archive is one finding. Raises `UsageError` if it or a payload file cannot be read, and ModuleNotFoundError
    if tritonclient is not installed.
    """
    if not path.exists():
        raise UsageError(
            f"{path}: there is no such file or folder. Allowed: a model.tar.gz, or an unpacked Triton model repository "
            "(the folder that holds the model folders)."
        )
    contents = read(path)
    if contents.unreadable is not None:
        last = f" after '{contents.members[-1].name}'" if contents.members else ""
        return [finding("unreadable-archive", FindingPlace(path.name), problem=contents.unreadable, last=last)]
    if is_neuron(contents):
        return [*check_paths(contents, neuron_graphs(contents)), *check_neuron(contents, context)]
    models, findings = find_models(contents)
    repository = PackedRepository(contents=contents, models={model.name: model for model in models}, context=context)
    findings += check_paths(contents, {file for model in models for file in _loaded_files(model, contents)})
    findings += [each for model in models for check in MODEL_CHECKS for each in check(model, repository)]
    if models:
        findings += [each for check in REPOSITORY_CHECKS for each in check(repository)]
    return findings


def _loaded_files(model: PackedModel, contents: Contents) -> list[str]:
    """Returns the files that a backend loads: a TorchScript file is checked as one, not as a pickle."""
    file = model_file(model, backend_of(model, contents))
    return [join(model.name, version, file) for version in model.versions] if file else []
