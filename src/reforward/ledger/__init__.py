"""Append-only history of all values, and the views derived from it."""
