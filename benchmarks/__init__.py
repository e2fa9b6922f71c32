"""How fast and how large, as ratios to a floor measured in the same run.

Absolute times differ from machine to machine and from minute to minute; a ratio to the least
that could be done with the same bytes, measured in turn with it, says whether the project is slow.
"""
