"""Stands in for what this machine has not: `docker` and `make` on a step's PATH, Neuron's compiler, a container."""
