"""The stock network itself, handed in as a discovery.

Reported: cap-evolve PR #317 (gates that accept identical code)
Covers: identical arms
Expect: identical
"""
