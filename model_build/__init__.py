"""Checkpoint → portable graphs → compiled for a target → verified → Triton repository → model.tar.gz."""
