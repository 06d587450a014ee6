"""Estimators of sequences."""
