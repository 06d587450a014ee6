"""The junction tree: layout, message passing, marginals, draws."""
