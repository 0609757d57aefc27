"""Hypothesis profiles: `check` while one edits, `ci` for everything; plain `pytest` takes `check`."""

from hypothesis import HealthCheck, settings

# No deadline: the machines that run these tests share their cores, and a slow example is not a wrong one.
SLOW_IS_NOT_WRONG = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("check", max_examples=30, deadline=None, suppress_health_check=SLOW_IS_NOT_WRONG)
settings.register_profile(
    "ci", max_examples=200, deadline=None, suppress_health_check=SLOW_IS_NOT_WRONG, print_blob=True
)
settings.load_profile("check")
