"""An Estimate as text, JSON, Markdown, CSV or HTML. Leaves: they read results and compute no figure of their own.

They import what the engine returns, and each other; only `cli` and the methods of results that print them import them.
"""
