"""Settings of all tests: no time limit on examples, since how busy a machine is proves nothing.

A commit passes or fails for what it is: the examples are the same in every run. `--hypothesis-profile=search` draws
new ones.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("llmcalc", settings.get_profile("search"), derandomize=True)
settings.load_profile("llmcalc")
