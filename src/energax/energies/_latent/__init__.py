"""Models with a hidden representation."""
