"""Saved cases: a plan, a fault and what is to hold, in a file that a person can read."""
