"""Mechanical passes, one per file; see `base.py`."""
