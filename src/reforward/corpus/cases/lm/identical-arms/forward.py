"""The stock forward itself, handed in as a discovery.

Reported: cap-evolve PR #317 (gates that accept identical code); AMD Hyperloom (58 % spread of an unchanged configuration)
Covers: identical arms
Expect: identical
"""
