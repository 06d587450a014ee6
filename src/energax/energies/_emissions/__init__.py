"""Densities p(x | z), stacked over the values of z."""
