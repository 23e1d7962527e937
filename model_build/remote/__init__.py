"""Builds on SageMaker: a Processing job in the image and on the instance that a target needs.

    request        where the jobs run, and a processing job for each machine
    remote_build   upload, create, wait, fetch
    recording      evaluation.jsonl on an Inferentia chip
    entry          the program in the container

No job has run on AWS yet: tests check requests against botocore's service model, and the release rehearsal runs builds
for Inferentia as local processes.
"""
