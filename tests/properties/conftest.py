"""How hard properties are tried: HYPOTHESIS_PROFILE is `quick` (make check), `default`, or `soak`."""

import os

from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow,)

settings.register_profile(
    "quick", max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=_SLOW
)
settings.register_profile("default", max_examples=100, deadline=None, suppress_health_check=_SLOW)
settings.register_profile(
    "soak", max_examples=5_000, stateful_step_count=100, deadline=None, suppress_health_check=_SLOW
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
