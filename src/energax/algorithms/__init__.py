"""Algorithms on arrays. They know no energies."""
