"""Closed forms and enumeration."""
