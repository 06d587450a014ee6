"""Estimators for sequences: hidden Markov models, linear-Gaussian state-space models."""
