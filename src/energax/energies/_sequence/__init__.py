"""Markov chains, hidden Markov chains and linear-Gaussian state-space models."""
