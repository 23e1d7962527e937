"""Models for Triton's Python backend."""
