"""Pure functions from facts to a ruling."""
