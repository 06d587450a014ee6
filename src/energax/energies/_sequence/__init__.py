"""Markov, hidden Markov and linear-Gaussian chains."""
