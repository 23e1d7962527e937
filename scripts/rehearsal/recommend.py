"""`python -m scripts.rehearsal.recommend WORKLOAD --count N --min N --max N --each N`: writes a recommendation.

The numbers are chosen by hand for a rehearsal and were never measured, as its provenance says. Writes
workloads/WORKLOAD/recommendation.json below the folder that it is run in, and says what it wrote.
"""

import argparse
import sys
from pathlib import Path

from workloads import (
    Autoscaling,
    Candidate,
    Provenance,
    Recommendation,
    load_artifact,
    load_workload,
)
from workloads.program import exit_code

UNMEASURED = "a rehearsal: chosen by hand, not measured"


def main() -> int:
    options = _options()
    root = Path.cwd()
    folder = load_workload(options.workload, root / "workloads")
    artifact = load_artifact(root, options.workload, options.target)
    target, objective = folder.target(options.target), folder.hosted_on(options.target).workload.latency_objective
    chosen = Candidate(
        instance_type=target.instance_types[0] if target.instance_types else "ml.c5.xlarge",
        environment={},
        instance_count=options.count,
        autoscaling=Autoscaling(
            min_capacity=options.min, max_capacity=options.max, target_invocations_per_instance=options.each
        ),
        meets_objective=True,
        reason="Chosen for a rehearsal.",
    )
    recommendation = Recommendation(
        workload=options.workload,
        target=options.target,
        archive_sha256=artifact.archive_sha256,
        objective=objective,
        recommended=chosen,
        candidates=(chosen,),
        provenance=Provenance(
            measured_on="local",
            machine=UNMEASURED,
            job_name="rehearsal",
            job_arn="arn:aws:sagemaker:us-east-1:123456789012:inference-recommendations-job/rehearsal",
            traffic="none",
            percentile="P99",
            measured_at="2026-01-01T00:00:00Z",
            region="us-east-1",
            run="none",
        ),
    )
    recommendation.write_json(folder.recommendation_file)
    print(f"{folder.recommendation_file.relative_to(root)}: {options.count} instances, {options.min} to {options.max}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("--target", default="cpu")
    for name in ("count", "min", "max"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--each", type=float, required=True, help="invocations per minute and instance to track")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(exit_code(main))
