"""`python -m scripts.rehearsal.recommend WORKLOAD --count N --min N --max N --each N`: writes a recommendation.

The numbers are invented, as its provenance says. Writes workloads/WORKLOAD/recommendation.json below the working
folder.
"""

import argparse
import sys
from pathlib import Path

from workloads import Autoscaling, Candidate, Provenance, Recommendation, load_artifact, load_workload
from workloads.program import exit_code

JOB_ARN = "arn:aws:sagemaker:us-east-1:123456789012:inference-recommendations-job/rehearsal"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("--target", default="cpu")
    for name in ("count", "min", "max"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--each", type=float, required=True, help="target invocations per minute and instance")
    options = parser.parse_args()
    root = Path.cwd()
    folder = load_workload(options.workload, root / "workloads")
    target = folder.target(options.target)
    candidate = Candidate(
        instance_type=target.instance_types[0] if target.instance_types else "ml.c5.xlarge",
        environment={},
        instance_count=options.count,
        autoscaling=Autoscaling(
            min_capacity=options.min, max_capacity=options.max, target_invocations_per_instance=options.each
        ),
        meets_objective=True,
        reason="Chosen for a rehearsal.",
    )
    Recommendation(
        workload=options.workload,
        target=options.target,
        archive_sha256=load_artifact(root, options.workload, options.target).archive_sha256,
        objective=folder.hosted_on(options.target).workload.latency_objective,
        recommended=candidate,
        candidates=(candidate,),
        provenance=Provenance(
            measured_on="local",
            machine="a rehearsal: chosen by hand, not measured",
            job_name="rehearsal",
            job_arn=JOB_ARN,
            traffic="none",
            percentile="P99",
            measured_at="2026-01-01T00:00:00Z",
            region="us-east-1",
            run="none",
        ),
    ).write_json(folder.recommendation_file)
    print(f"{folder.recommendation_file.relative_to(root)}: {options.count} instances, {options.min} to {options.max}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
