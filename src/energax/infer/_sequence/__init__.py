"""Exact inference in hidden Markov chains and linear-Gaussian state-space models."""
