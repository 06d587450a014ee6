"""Exact inference in hidden Markov and linear-Gaussian chains."""
