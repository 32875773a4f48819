"""Sessions: interleaved arms, the client-side clock, replay of a workload."""
