"""Asks an account, before a deployment, for what the deployment will need of it.

It knows the contract and `aws_api`, and no construct: what a stack needs follows from the workload's files.
"""
