"""What can go wrong in compiling for Neuron, each with its exit code."""

from collections.abc import Sequence

from workloads import ProjectError

CHIP = {"neuron": "Inf1", "neuronx": "Inf2"}


class MissingNeuron(ProjectError):
    exit_code = 3

    def __init__(self, package: str, runtime: str, workload: str, target: str) -> None:
        super().__init__(
            f"The Python package '{package}' is not installed, and compiling {workload} for {target} ({CHIP[runtime]}) "
            "needs it. It is not on PyPI; AWS's Neuron images have it. "
            f"Compile remotely with `python -m model_build build {workload} --target {target} --on sagemaker`, or run "
            "the build in such an image. No Inferentia chip is needed to compile."
        )


class UnusableSequenceLengths(ProjectError):
    def __init__(self, lengths: Sequence[int], max_input_tokens: int) -> None:
        super().__init__(
            f"sequence_lengths: got {list(lengths)}, but model.max_input_tokens is {max_input_tokens}, and requests of "
            f"that length need a graph. Make the longest {max_input_tokens}."
        )


class UnsupportedSavedModel(ProjectError):
    def __init__(self, version: str, runtime: str) -> None:
        allowed = {"neuron": "1 or 2", "neuronx": "2"}[runtime]
        super().__init__(
            f"model.checkpoint: the SavedModel was written by TensorFlow {version}, but {runtime} compiles those of "
            f"TensorFlow {allowed}. Save it again with such a version."
        )


class BrokenSavedModel(ProjectError):
    def __init__(self, folder: str, problem: str) -> None:
        super().__init__(
            f'model.checkpoint: {folder} {problem}. framework = "tensorflow" takes a folder with saved_model.pb and '
            "tokenizer.json."
        )
