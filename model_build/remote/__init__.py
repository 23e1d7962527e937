"""Builds on SageMaker: a Processing job in the image and on the instance that a target needs.

No job has run on AWS yet: tests check requests against botocore's service model, and the release rehearsal runs builds
for Inferentia as local processes.
"""
