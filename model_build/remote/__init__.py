"""The same build on another machine: a SageMaker Processing job in the image and on the instance that a target needs.

    where          what the command line says → where the jobs run
    request        a workload's variant and where → a processing job for each machine. Pure
    command_line   the options of --on sagemaker, and what they do
    remote_build   upload, create, wait, fetch. Knows AWS by the port in `aws_account` alone
    entry          what runs in the container

No job has been run on AWS by those who wrote this: requests are checked against botocore's service model, and the
rehearsal's account runs builds for Inferentia as processes of this machine.
"""
