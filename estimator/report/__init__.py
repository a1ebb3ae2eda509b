"""An Estimate as text, JSON, Markdown, CSV or HTML. Leaves: they read results and compute no figure of their own."""
