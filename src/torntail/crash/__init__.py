"""What a crash can leave of a recorded disk: pure functions from an op log to disk images."""
