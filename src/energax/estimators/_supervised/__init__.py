"""Classifiers."""
