"""Minimisation of energies over real variables."""
