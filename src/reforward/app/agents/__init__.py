"""Agents at work: the desk that takes their jobs, what they may see, how they are started, told and counted."""
