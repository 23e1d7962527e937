"""Rehearses releases on an account of this machine, with stand-ins for missing hardware."""
