"""Candidates that cheat and candidates that do not: what the judge is tried on."""
