"""Mirrors the tree."""
