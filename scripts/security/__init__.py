"""Attacks that were reproduced once, to be tried again: each has to fail."""
