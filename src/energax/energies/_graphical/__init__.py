"""Bayesian networks and factor graphs."""
