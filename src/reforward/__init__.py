"""reforward: a continual compiler for AI inference."""

__version__ = "0.1.0"
