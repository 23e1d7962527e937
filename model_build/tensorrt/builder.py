"""Builds a plan with a Python package: TensorRT's own, or that of TensorRT for RTX, which has the same classes.

TensorRT 10 takes types from the graph only with `STRONGLY_TYPED`; TensorRT 11 accepts the flag and ignores it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from model_build.tensorrt.profiles import Profile
from workloads import TensorRtTarget


class BuilderRefused(Exception):
    """The parser or the builder does not support a graph, a type or a profile."""


def build_plan(
    tensorrt: Any,
    file: Path,
    profiles: Sequence[Profile],
    target: TensorRtTarget,
    configure: Callable[[Any], None] = lambda config: None,
) -> Any:
    """Returns the serialised plan of a graph's file. Raises `BuilderRefused` with the package's messages.

    `configure` changes the builder's configuration further.
    """
    log = _log(tensorrt)
    builder = tensorrt.Builder(log)
    network = builder.create_network(1 << int(tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    _parse(tensorrt.OnnxParser(network, log), file)
    config = builder.create_builder_config()
    config.builder_optimization_level = target.builder_optimization_level
    config.clear_flag(tensorrt.BuilderFlag.TF32)
    configure(config)
    for number, profile in enumerate(profiles):
        _add_profile(builder, config, network, number, profile, log)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise BuilderRefused(log.text())
    return plan


def _parse(parser: Any, file: Path) -> None:
    if not parser.parse_from_file(str(file)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        raise BuilderRefused(
            "; ".join(f"{error.node_operator()} {error.node_name()}: {error.desc()}" for error in errors)
        )


def _add_profile(builder: Any, config: Any, network: Any, number: int, profile: Profile, log: Any) -> None:
    """Refuses a name that is no input, as trtexec does, and a varying shape without a range, for which it takes 1."""
    inputs = {each.name: tuple(each.shape) for each in map(network.get_input, range(network.num_inputs))}
    varying = {name for name, shape in inputs.items() if -1 in shape}
    if not varying <= set(profile) <= set(inputs):
        raise BuilderRefused(
            f"profile {number} has shapes for {', '.join(sorted(profile))}; those of {', '.join(sorted(varying))} vary"
        )
    made = builder.create_optimization_profile()
    for name, shapes in profile.items():
        made.set_shape(name, shapes.min, shapes.opt, shapes.max)
    if config.add_optimization_profile(made) < 0:
        raise BuilderRefused(f"profile {number}: {log.text()}")


def _log(tensorrt: Any) -> Any:
    """Returns a logger that keeps errors. NVIDIA's own prints; one that Python calls has to be derived."""

    class Log(tensorrt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            tensorrt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (tensorrt.ILogger.ERROR, tensorrt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)

        def text(self) -> str:
            return "; ".join(self.errors) or "no message"

    return Log()
