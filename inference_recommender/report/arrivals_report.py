"""The report of the arrival process that fits recorded time stamps. Pure."""

from inference_recommender.capacity.arrivals import Fit
from inference_recommender.report.document import Highlight, Report, table
from workloads.objective import PROCESS_KEYS

CLOSE = 0.2
"""A fit with a larger distance is called poor."""
WINDOWS = (("window_s", "window, s", ",.3g"), ("recorded", "recorded", ",.3g"), ("fitted", "fitted", ",.3g"))
NOTE = "Index of dispersion: the variance of the count of requests in windows of a length over its mean. Poisson has 1."


def arrivals_report(name: str, workload: str, found: Fit) -> Report:
    """Returns the report; `patch` has the lines for workload.toml."""
    process = found.process
    keys = {"process": f'"{process.process}"'}
    keys |= {key: f"{getattr(process, key):.3g}" for key in PROCESS_KEYS[process.process]}
    poor = found.distance > CLOSE
    return Report(
        kind="arrivals",
        name=name,
        workload=workload,
        objective=f"arrivals of {name}",
        verdict="missed" if poor else "met",
        decision=f"{process.text}: the dispersions differ by {found.distance:.0%} on average."
        + (' That is a poor fit. Replay the file instead: process = "replay".' if poor else ""),
        highlights=(
            Highlight(label="requests/s", value=f"{found.rate_per_s:,.4g}"),
            Highlight(label="CV of the gaps", value=f"{found.cv:.3g}"),
        ),
        tables=(
            table(
                "dispersion",
                "Dispersion by window",
                WINDOWS,
                list(zip(found.windows_s, found.dispersion, found.fitted, strict=True)),
                NOTE,
            ),
        ),
        patch="\n".join(["[objective.arrivals]", *(f"{key} = {value}" for key, value in keys.items())]) + "\n",
    )
