"""Small helpers without knowledge of models."""
