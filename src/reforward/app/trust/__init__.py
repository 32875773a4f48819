"""How far the judge can be trusted here: the selftest on the corpus, and rates of error."""
