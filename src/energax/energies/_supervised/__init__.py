"""Energies of an answer given inputs."""
