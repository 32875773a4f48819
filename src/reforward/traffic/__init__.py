"""Traces, and the workloads distilled from them."""
