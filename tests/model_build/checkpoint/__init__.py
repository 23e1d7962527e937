"""Reading and checking checkpoints."""
