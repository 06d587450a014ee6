"""Emissions: densities p(x | z) for every value of z, stacked in arrays."""
