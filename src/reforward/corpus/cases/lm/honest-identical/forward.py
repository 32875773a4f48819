"""The stock forward itself, without a change.

Expect: honest
"""
