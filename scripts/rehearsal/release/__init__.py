"""Runs the synthesised release pipeline on this machine, action by action, against an account on this machine.

`pipeline_template` reads what the template declares, `execution` walks its stages, `codebuild` runs a build as
CodeBuild would, and `scenarios` says which releases are shown.
"""
