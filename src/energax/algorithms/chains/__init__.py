"""Algorithms on chains: recursions of hidden Markov chains, Kalman filters, Markov-chain theory."""
