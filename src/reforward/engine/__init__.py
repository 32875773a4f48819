"""Processes: vault, nursery, worker, pool, wire. Weights stay loaded; candidates come and go."""
