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
KEYS = (
    "run recommender role_arn parallel_tests generators generator_type generator_image_uri request_timeout_s",
    "size sizing headroom burst_factor spare_instances availability_zones",
    "tune tune targets threads model_instances max_batch_sizes preferred_batch_sizes max_queue_delays_ms",
    "tune tune max_duration_s",
    "experiment recommender role_arn host_ami",
    "simulate simulation fill_gaps region provisioning_s model_load_s metric_delay_s tolerance_minutes confidence",
    "simulate policy scale_out_cooldown_s scale_in_cooldown_s",
)
"""Command, table of workload.toml, and the keys that were flags of the same names."""
OTHERS = (
    "run --with --endpoint NAME or --url URL",
    "run --model-name --set recommender.model=NAME",
    "run --model-package --set recommender.model=ARN",
    "run --model --url with the path of the model's infer",
    "run --instance-type --instances [Nx]TYPE",
    "run --payload-bucket --set recommender.bucket=NAME",
    "run --subnet --set recommender.subnets=ID,ID",
    "run --security-group --set recommender.security_groups=ID,ID",
    "run --kms-key --set recommender.kms_key_arn=ARN",
    "run --tag --set recommender.tags.KEY=VALUE",
    "run --job-name --name NAME",
    "size --percentile --latency-limit-ms P99=N",
    "size --throughput-per-second --from FILE with rows_per_second and source, and --workload NAME",
    "experiment --with --set recommender.load=sagemaker or load-test",
    "experiment --payload-bucket --set recommender.bucket=NAME",
    "experiment --image-uri --set recommender.images.all=URI, or images.cpu, gpu, inf1 or inf2",
    "prove --model --url with the path of the model's infer",
    "prove --instance-type --instances [Nx]TYPE",
    "simulate --from-cloudwatch --trace cloudwatch:ENDPOINT",
    "simulate --peak-invocations-per-minute --set objective.peak_invocations_per_minute=N",
    "simulate --first-seed --seeds N",
    "simulate --policy --set policy.KEY=VALUE, with keys of autoscaling in recommendation.json",
    "simulate --target-invocations --set policy.target_invocations_per_instance=N",
    "simulate --min-instances --set policy.min_capacity=N",
    "simulate --max-instances --set policy.max_capacity=N",
    "register --model-name --set recommender.model=NAME",
    "register --payload-bucket --set recommender.bucket=NAME",
)
FLAGS = {
    **{
        (command, f"--{key.replace('_', '-')}"): f"--set {table}.{key}=VALUE"
        for command, table, *keys in map(str.split, KEYS)
        for key in keys
    },
    **{(line.split()[0], line.split()[1]): line.split(maxsplit=2)[2] for line in OTHERS},
}
"""Command and old flag → new words."""


def renamed(arguments: Sequence[str]) -> str | None:
    """Returns what replaces an old command or flag, as a sentence; None if there is none."""
    command = arguments[0] if arguments else ""
    if new := COMMANDS.get(command):
        return f"The command `{command}` was replaced. Use `python -m inference_recommender {new}`."
    flags = [argument.partition("=")[0] for argument in arguments]
    replaced = (
        f"{command} {flag} was replaced. Use {FLAGS[command, flag]}." for flag in flags if (command, flag) in FLAGS
    )
    return next(replaced, None)
