"""Small checkpoints with seeded random weights, and workloads of them."""
