"""`python -m llmcalc`: the command line, where its script is not on the path."""

from __future__ import annotations

if __name__ == "__main__":
    from .cli import main

    main()
