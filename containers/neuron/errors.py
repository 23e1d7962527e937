"""Why the server does not start or goes down: one sentence each, and the exit code."""

from collections.abc import Sequence


class ServeError(Exception):
    exit_code = 3


class NoModel(ServeError):
    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(
            f"{folder}: {reason}. A model's folder is wanted there: settings.json, server.json, tokenizer.json and the "
            "compiled model."
        )


class NoCores(ServeError):
    def __init__(self) -> None:
        super().__init__(
            "The model is compiled for Neuron and there is no /dev/neuron* device. Run on an inf1 or inf2 instance, "
            "give the container its devices (--device=/dev/neuron0), or set NEURON_RT_NUM_CORES."
        )


class TooFewCores(ServeError):
    def __init__(self, cores: int, pipeline_cores: int) -> None:
        super().__init__(
            f"The model is a pipeline over {pipeline_cores} NeuronCores and there are {cores}. Use a larger instance "
            "or compile with fewer pipeline_cores."
        )


class PortTaken(ServeError):
    def __init__(self, port: int, reason: str) -> None:
        super().__init__(f"Port {port} cannot be listened on: {reason}. Free it, or set PORT to another.")


class BadSetting(ServeError):
    exit_code = 2

    def __init__(self, name: str, got: str, allowed: str) -> None:
        super().__init__(f"{name}: got '{got}'. Allowed: {allowed}.")


class WorkerFailed(ServeError):
    def __init__(self, worker: int, cores: Sequence[int], reason: str) -> None:
        where = f" on NeuronCore{'s' if len(cores) > 1 else ''} {', '.join(map(str, cores))}" if cores else ""
        super().__init__(
            f"Worker {worker}{where} {reason}. The server goes down with it, to be started again as a whole."
        )
