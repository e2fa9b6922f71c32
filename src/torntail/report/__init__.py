"""Consumers of a campaign's events and of its certificate: terminal and JSON."""
