"""Settings every test shares.

Where CI variables are set, Hypothesis loads a profile of its own that draws the same cases for
ever; the profile here says everything explicitly instead.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "torntail",
    max_examples=200,
    deadline=None,
    derandomize=False,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("torntail")
