"""Takes a workload from its objective to an instance count: job, load, capacity, size, report."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inference_recommender.measure.fleet_proof import prove
    from inference_recommender.measure.workload_run import run
    from inference_recommender.sizing.evidence import size

__all__ = ["prove", "run", "size"]


def __getattr__(name: str) -> object:
    """Imports the functions when one is first used. They need SciPy and matplotlib; the client needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from inference_recommender.measure.fleet_proof import prove
    from inference_recommender.measure.workload_run import run
    from inference_recommender.sizing.evidence import size

    return {"prove": prove, "run": run, "size": size}[name]
