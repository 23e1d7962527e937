"""One module per command of `python -m inference_recommender`: parse, load, choose, call, render, return."""

DEFAULT_TRAFFIC = "production"
GENERATOR_TYPE = "ml.c5.2xlarge"
"""A generator uses one core; the second is for the network."""
