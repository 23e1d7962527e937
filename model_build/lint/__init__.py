"""Finds problems in a model.tar.gz, or its unpacked folder, that would fail on SageMaker after half an hour.

The archive is a Triton repository, or a model for Neuron as containers/neuron serves it. A finding has the problem, its
place, its effect and the fix. Nothing is unpacked, executed or sent: the checks apply the rules of Triton and SageMaker
without loading a model.
"""
