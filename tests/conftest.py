"""Settings of all tests: no time limit on examples, since how busy a machine is proves nothing."""

from hypothesis import HealthCheck, settings

settings.register_profile("llmcalc", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("llmcalc")
