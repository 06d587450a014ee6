"""Recursions on chains: hidden Markov, Kalman, Markov-chain theory."""
