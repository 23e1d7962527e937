"""What stands between the parity gate and a GPU, said as errors for people.

The engines of `containers` speak of plans and of CUDA; a build speaks of workloads and targets.
"""

import contextlib
from collections.abc import Iterator

from containers.text2text.tensorrt_plan import CudaFailed, PlanRefused
from model_build.plan import BuildPlan
from model_build.tensorrt.errors import EngineFailed, NoBindings

BINDINGS = ("tensorrt", "cuda")


@contextlib.contextmanager
def explained(plan: BuildPlan) -> Iterator[None]:
    """Raises `NoBindings` or `EngineFailed` in place of what an engine raises."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in BINDINGS:
            raise
        raise NoBindings(f"the package '{error.name}' is not installed", None) from error
    except (PlanRefused, CudaFailed) as error:
        raise EngineFailed(plan.workload.name, plan.variant.target, str(error)) from error
