"""One module per command of `python -m inference_recommender`: parse, load, choose, call, render, return."""

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
