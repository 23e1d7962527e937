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
    "prove": {
        "--model": "--url with the path of the model's infer",
        "--instance-type": "--instances [Nx]TYPE",
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
