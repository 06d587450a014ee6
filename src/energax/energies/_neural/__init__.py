"""Energies that are networks."""
