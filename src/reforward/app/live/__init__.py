"""A served model that improves itself: serving, deployments, capture, the watch over traffic, and `up`, which joins them."""
