"""Stock forward passes: the readable twins that every candidate is compared with."""
