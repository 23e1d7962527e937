"""What a job tests, from the command line: the flags, and what the stack says where they say nothing."""

import argparse

from inference_recommender.errors import RefusedRequest
from inference_recommender.jobs.aws import Aws
from inference_recommender.jobs.job_run import payload_key
from inference_recommender.jobs.requests import PackageSubject, Subject, Surroundings
from inference_recommender.jobs.tested_model import AnySubject
from workloads import Workload


def add_subject(parser: argparse.ArgumentParser) -> None:
    tested = parser.add_argument_group("what is tested")
    model = tested.add_mutually_exclusive_group()
    model.add_argument("--model-name", metavar="NAME", help="SageMaker model; default: the one the stack deployed")
    model.add_argument("--model-package", metavar="ARN", help="a version in the model registry, as `register` prints")
    tested.add_argument("--endpoint", metavar="NAME", help="an endpoint to test beside the types; default jobs only")
    tested.add_argument("--role-arn", metavar="ARN", help="role the job assumes; default: the stack's")
    tested.add_argument("--payload-bucket", metavar="BUCKET", help="default: SageMaker's bucket of account and region")


def add_surroundings(parser: argparse.ArgumentParser) -> None:
    around = parser.add_argument_group("the job's surroundings")
    around.add_argument("--subnet", action="append", default=[], metavar="ID", help="of its endpoints; may be repeated")
    around.add_argument(
        "--security-group", action="append", default=[], metavar="ID", help="of its endpoints; may be repeated"
    )
    around.add_argument("--kms-key", metavar="KEY", help="encrypts its endpoints' volumes and its output")
    around.add_argument("--tag", action="append", default=[], metavar="K=V", help="may be repeated")
    around.add_argument("--description", metavar="TEXT", help="of the job; default: the workload's and its traffic")


def surroundings(options: argparse.Namespace) -> Surroundings:
    """Raises `RefusedRequest` for a tag without `=`."""
    pairs = [text.partition("=") for text in options.tag]
    if odd := [f"--tag: got '{key}'. Allowed: KEY=VALUE." for key, equals, _ in pairs if not equals]:
        raise RefusedRequest(odd)
    return Surroundings(
        subnets=tuple(options.subnet),
        security_groups=tuple(options.security_group),
        kms_key=options.kms_key,
        tags={key: value for key, _, value in pairs},
        description=options.description,
    )


def subject(options: argparse.Namespace, aws: Aws, workload: Workload) -> AnySubject:
    """The model and role named on the command line; where one is missing, the stack's."""
    model, role = options.model_package or options.model_name, options.role_arn
    if not (model and role):
        outputs = aws.stack_outputs(workload.stack_name)
        model, role = model or outputs.model_name, role or outputs.role_arn
    return _subject(options, model, role, options.payload_bucket or aws.payload_bucket(), workload)


def stand_in(options: argparse.Namespace, workload: Workload) -> AnySubject:
    """The same where AWS cannot tell: names that stand for what it would have told."""
    model = options.model_package or options.model_name or f"{workload.stack_name}-ServingModel"
    role = options.role_arn or "arn:aws:iam::000000000000:role/RecommenderRole"
    return _subject(options, model, role, options.payload_bucket or "sagemaker-REGION-ACCOUNT", workload)


def _subject(options: argparse.Namespace, model: str, role: str, bucket: str, workload: Workload) -> AnySubject:
    url = f"s3://{bucket}/{payload_key(workload.name)}"
    named = Subject(model_name=model, role_arn=role, payload_url=url, endpoint_name=options.endpoint)
    if options.model_package is None:
        return named
    return PackageSubject(model_package_arn=model, role_arn=role, payload_url=url, endpoint_name=named.endpoint_name)
