"""Estimates from random draws."""
