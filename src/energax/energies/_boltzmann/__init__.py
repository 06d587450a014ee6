"""Boltzmann machines."""
