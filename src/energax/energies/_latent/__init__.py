"""Latent-variable models."""
