"""The engine of an NVIDIA GPU: weights in device memory once, workers that map them read-only."""
