"""Optimisation algorithms: L-BFGS and k-means."""
