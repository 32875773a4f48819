"""The stock network itself, without a change.

Expect: honest
"""
