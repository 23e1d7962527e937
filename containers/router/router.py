"""Triton's entry point of the router, in the Python backend.

SageMaker's front end sends every /invocations request to one model. The router calls the model that the request's
parameter `model` names, or the first one, by business logic scripting, and returns that model's answer or error.
"""

import asyncio
import json
from typing import Any

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """`execute` gets a dynamic batch of requests; the models that they name answer them at once."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        self._outputs: dict[str, list[str]] = json.loads(parameters["models"]["string_value"])

    async def execute(self, requests: list[Any]) -> list[Any]:
        return list(await asyncio.gather(*map(self._answer, requests)))

    async def _answer(self, request: Any) -> Any:
        parameters = json.loads(request.parameters() or "{}")
        name = parameters.pop("model", next(iter(self._outputs)))
        requested = request.requested_output_names()
        outputs = [output for output in self._outputs.get(name, ()) if output in requested]
        if not outputs:
            known = "; ".join(f"{model} with {', '.join(names)}" for model, names in self._outputs.items())
            return _refused(f"parameter model: got {name!r} with the outputs {', '.join(requested)}. Allowed: {known}.")
        call = pb_utils.InferenceRequest(
            model_name=name, inputs=request.inputs(), requested_output_names=outputs, parameters=parameters
        )
        answer = await call.async_exec()
        if answer.has_error():
            return pb_utils.InferenceResponse(error=answer.error())
        return pb_utils.InferenceResponse(answer.output_tensors())


def _refused(message: str) -> Any:
    error = pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
    return pb_utils.InferenceResponse(error=error)
