"""Supervised models: energies of a target given inputs."""
