"""Sums, minima and draws of products of tables."""
