"""Estimators with a network or a Boltzmann machine."""
