"""Measured runs: reading them, predicting them, and fitting the efficiency factors to them."""
