"""Minimisation: L-BFGS and k-means."""
