"""Talking to a store under test: finding it, calling it, and seeing what it did to its storage."""
