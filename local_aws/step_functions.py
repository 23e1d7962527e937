"""moto's Step Functions without its executions: moto would make one up, with a history that nobody lived through."""

from typing import Any, NoReturn

from moto.stepfunctions import urls
from moto.stepfunctions.models import StepFunctionBackend


class LocalStepFunctionBackend(StepFunctionBackend):
    @property
    def _url_module(self) -> Any:
        return urls

    def start_execution(self, *arguments: Any, **named: Any) -> NoReturn:
        raise NotImplementedError("StartExecution, because no step of a state machine runs here")
