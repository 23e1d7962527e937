"""Decides what a role may do at this local account: policies as AWS evaluates them, and what each API call needs."""
