"""Old names of commands and flags, and what replaces them."""

from collections.abc import Sequence

COMMANDS = {
    "capacity": "run WORKLOAD --url URL",
    "cold-start": "run WORKLOAD --cold-start",
    "lengths": "run WORKLOAD --url URL --payloads FILE",
    "list": "jobs list",
    "describe": "jobs describe NAME",
    "stop": "jobs stop NAME",
    "sweep": "jobs cleanup",
    "batch": "size --workload WORKLOAD --from REPORTS",
    "prices": "size --explain, or size --refresh-prices",
    "reports": "report --all",
}
"""Old command → new command line."""
FLAGS = {
    "run": {
        "--with": "--endpoint NAME or --url URL",
        "--model-name": "--set recommender.model=NAME",
        "--model-package": "--set recommender.model=ARN",
        "--model": "--url with the path of the model's infer",
        "--instance-type": "--instances [Nx]TYPE",
        "--role-arn": "--set recommender.role_arn=ARN",
        "--payload-bucket": "--set recommender.bucket=NAME",
        "--parallel-tests": "--set recommender.parallel_tests=N",
        "--subnet": "--set recommender.subnets=ID,ID",
        "--security-group": "--set recommender.security_groups=ID,ID",
        "--kms-key": "--set recommender.kms_key_arn=ARN",
        "--tag": "--set recommender.tags.KEY=VALUE",
        "--description": "the description of workload.toml",
        "--job-name": "--name NAME",
        "--generators": "--set recommender.generators=N",
        "--generator-type": "--set recommender.generator_type=TYPE",
        "--generator-image-uri": "--set recommender.generator_image_uri=URI",
        "--request-timeout-s": "--set recommender.request_timeout_s=S",
    },
    "size": {
        "--percentile": "--latency-limit-ms P99=N",
        "--headroom": "--set sizing.headroom=H",
        "--burst-factor": "--set sizing.burst_factor=B",
        "--spare-instances": "--set sizing.spare_instances=N",
        "--availability-zones": "--set sizing.availability_zones=N",
        "--throughput-per-second": "--from FILE with rows_per_second and source, and --workload NAME",
    },
    "tune": {
        "--targets": "--set tune.targets=NAME,NAME",
        "--threads": "--set tune.threads=N,N",
        "--model-instances": "--set tune.model_instances=N,N",
        "--max-batch-sizes": "--set tune.max_batch_sizes=N,N",
        "--preferred-batch-sizes": "--set tune.preferred_batch_sizes=[[N,N]]",
        "--max-queue-delays-ms": "--set tune.max_queue_delays_ms=MS,MS",
        "--max-duration-s": "--set tune.max_duration_s=S",
    },
    "experiment": {
        "--with": "--set recommender.load=sagemaker or load-test",
        "--role-arn": "--set recommender.role_arn=ARN",
        "--payload-bucket": "--set recommender.bucket=NAME",
        "--image-uri": "--set recommender.images.all=URI, or images.cpu, gpu, inf1 or inf2",
        "--host-ami": "--set recommender.host_ami=NAME",
    },
    "prove": {
        "--model": "--url with the path of the model's infer",
        "--instance-type": "--instances [Nx]TYPE",
    },
    "simulate": {
        "--from-cloudwatch": "--trace cloudwatch:ENDPOINT",
        "--fill-gaps": "--set simulation.fill_gaps=zero or last",
        "--peak-invocations-per-minute": "--set objective.peak_invocations_per_minute=N",
        "--region": "--set simulation.region=REGION",
        "--first-seed": "--seeds N",
        "--policy": "--set policy.KEY=VALUE, with keys of autoscaling in recommendation.json",
        "--target-invocations": "--set policy.target_invocations_per_instance=N",
        "--min-instances": "--set policy.min_capacity=N",
        "--max-instances": "--set policy.max_capacity=N",
        "--scale-out-cooldown-s": "--set policy.scale_out_cooldown_s=S",
        "--scale-in-cooldown-s": "--set policy.scale_in_cooldown_s=S",
        "--provisioning-s": "--set simulation.provisioning_s=S",
        "--model-load-s": "--set simulation.model_load_s=S",
        "--metric-delay-s": "--set simulation.metric_delay_s=S",
        "--tolerance-minutes": "--set simulation.tolerance_minutes=M",
        "--confidence": "--set simulation.confidence=SHARE",
    },
    "register": {
        "--model-name": "--set recommender.model=NAME",
        "--payload-bucket": "--set recommender.bucket=NAME",
        "--description": "the description of workload.toml",
    },
}
"""Command → old flag → new words."""


def renamed(arguments: Sequence[str]) -> str | None:
    """Returns what replaces an old command or flag, as a sentence; None if there is none."""
    if not arguments:
        return None
    command, *rest = arguments
    if new := COMMANDS.get(command):
        return f"The command `{command}` was replaced. Use `python -m inference_recommender {new}`."
    for argument in rest:
        flag = argument.partition("=")[0]
        if new := FLAGS.get(command, {}).get(flag):
            return f"{command} {flag} was replaced. Use {new}."
    return None
