"""How long payloads are, and what it makes of a recommendation.

tokens    counts, cuts and joins payloads by the workload's own tokenizer
"""
