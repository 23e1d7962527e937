"""One module per command of `python -m inference_recommender`: parse, load, call, render, return."""
