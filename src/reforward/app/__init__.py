"""The loop and the wiring."""
