"""An AWS account on this machine: moto for the control plane, a real Triton behind every endpoint."""
