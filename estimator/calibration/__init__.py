"""Measured runs: reading them, predicting them, and fitting the efficiency factors to them.

Modules here import the engine, each other and `readers`; `request` and `parameter_sweep` load `profile_use` when asked
for a profile, and nothing else of the engine imports them.
"""
