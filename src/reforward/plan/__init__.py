"""The planner: which parallelism and which batch limits, on which hardware, under which limits of latency, and how sure."""
