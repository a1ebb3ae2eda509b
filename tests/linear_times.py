"""Step times in closed form, for tests of what is built on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmcalc.step_times import Array


@dataclass(frozen=True)
class LinearTimes:
    """A pass costs `pass_s`, and more for each token and for each cached position it reads."""

    pass_s: float = 5e-3
    token_s: float = 1e-4  # decode
    cell_s: float = 1e-7
    prompt_pass_s: float = 5e-3
    prompt_token_s: float = 2e-4
    ubatch: int = 512

    def decode_s(self, parallel: Array, occupied: Array) -> Array:
        return self.pass_s + self.token_s * parallel + self.cell_s * parallel * occupied

    def prefill_s(self, tokens: Array, cached: Array) -> Array:
        passes = np.ceil(np.asarray(tokens, float) / self.ubatch)
        return np.asarray(passes * self.prompt_pass_s + self.prompt_token_s * tokens + 1e-9 * tokens * cached)[()]
