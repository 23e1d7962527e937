"""Reads an archive once, then asks every check about it."""

from pathlib import Path

from model_build.lint.backends import backend_of, check_backend, check_files, model_file
from model_build.lint.contents import Contents, join
from model_build.lint.ensemble import check_ensemble
from model_build.lint.finding import Finding
from model_build.lint.hosting import check_hosting, default_model
from model_build.lint.layout import Model, find_models
from model_build.lint.neuron import check_neuron, is_neuron
from model_build.lint.neuron import graphs as neuron_graphs
from model_build.lint.paths import check_paths
from model_build.lint.payloads import check_payloads
from model_build.lint.reading import read
from model_build.lint.runtime_context import RuntimeContext
from model_build.lint.settings import check_settings
from model_build.lint.tensorrt import check_plans
from workloads import UsageError


def lint(path: Path, context: RuntimeContext) -> list[Finding]:
    """Returns everything that is known to go wrong with `path` in that context.

    `path` is a model.tar.gz or the folder it would be packed from: a Triton repository, or a model for Neuron. A
    damaged archive is one finding. Raises `UsageError` where it or a payload file cannot be read, and
    ModuleNotFoundError where tritonclient is not installed.
    """
    if not path.exists():
        raise UsageError(
            f"{path}: there is no such file or folder. Allowed: a model.tar.gz, or an unpacked Triton model repository "
            "(the folder that holds the model folders)."
        )
    contents = read(path)
    if contents.unreadable is not None:
        return [_unreadable(path, contents)]
    if is_neuron(contents):
        return check_paths(contents, neuron_graphs(contents)) + check_neuron(contents, context)
    models, findings = find_models(contents)
    by_name = {model.name: model for model in models}
    served = {file for model in models for file in _loaded_files(model, contents)}
    findings += check_paths(contents, served)
    for model in models:
        findings += check_backend(model, contents)
        findings += check_files(model, contents)
        findings += check_settings(model, contents)
        findings += check_ensemble(model, by_name)
        findings += check_plans(model, contents, context)
    if models:
        findings += check_hosting(by_name, contents, context)
        findings += _payloads(by_name, context)
    return findings


def _payloads(models: dict[str, Model], context: RuntimeContext) -> list[Finding]:
    default = default_model(models, context)
    config = models[default].config if default else None
    if default is None or config is None or not context.payloads:
        return []
    return check_payloads(context.payloads, default, config)


def _loaded_files(model: Model, contents: Contents) -> list[str]:
    """Returns the files that a backend loads: a TorchScript file is checked as one, not as a pickle."""
    file = model_file(model, backend_of(model, contents))
    return [join(model.name, version, file) for version in model.versions] if file else []


def _unreadable(path: Path, contents: Contents) -> Finding:
    last = f" after '{contents.members[-1].name}'" if contents.members else ""
    return Finding(
        code="unreadable-archive",
        severity="error",
        what=f"It cannot be read to its end: {contents.unreadable}{last}.",
        file=path.name,
        why="SageMaker unpacks a gzip-compressed tar into /opt/ml/model before the container starts, and fails.",
        fix="Pack or upload it again, and compare the sha256 of both ends.",
    )
