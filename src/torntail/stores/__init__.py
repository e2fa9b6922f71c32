"""Reference session stores and the protocol they keep."""
