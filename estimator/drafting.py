"""What drafts bring on a machine: speed-up by draft length and acceptance, the best length, the break-even.

Imports `speculative`, `drafters` and `request_times`: the library function of `llmcalc speculate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .drafters import PlacedDrafter, model_drafter, mtp_drafter, server_work
from .errors import InputError
from .memory import MemoryPlan, memory_plan
from .request_times import RequestTimes
from .speculative import (
    LONGEST_DRAFT,
    Drafter,
    NgramDrafter,
    ServerWork,
    Speculation,
    best_draft_length,
    break_even_acceptance,
    speculate,
)

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .request import Request

LONGEST_CONSIDERED: Final = 256
VOCAB_DIFFERENCE: Final = 128  # that llama.cpp allows: SPEC_VOCAB_MAX_SIZE_DIFFERENCE in common/speculative.cpp
ACCEPTANCES: Final = (0.5, 0.6, 0.7, 0.8, 0.9)  # shown where none is given: nothing is known of the text


@dataclass(frozen=True)
class DraftingGain:
    """Speculation for several acceptances (rows) and draft lengths 0 … longest (columns)."""

    request: Request
    drafter: Drafter
    work: ServerWork
    kind: str
    memory: MemoryPlan  # of the model alone
    acceptances: tuple[float, ...]
    curves: Speculation  # arrays [acceptances, lengths]
    best: NDArray[np.int64]  # [acceptances] the draft length of the highest rate, 0 where none pays
    break_even: NDArray[np.float64]  # [lengths from 1] the acceptance from which a length pays; NaN where it cannot
    parallel: int
    occupied: int

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Draft lengths of the columns."""
        return np.arange(self.speedup.shape[1])

    @property
    def speedup(self) -> NDArray[np.float64]:
        """[acceptances, lengths] rate over the rate without drafts."""
        return np.asarray(self.curves.speedup, float)

    @property
    def tokens_per_s(self) -> NDArray[np.float64]:
        """[acceptances, lengths] of one sequence."""
        return np.asarray(self.curves.tokens_per_s, float)

    @property
    def plain_tokens_per_s(self) -> float:
        """Of one sequence, without drafts."""
        return 1 / float(np.asarray(self.curves.plain_step_s))

    @property
    def fits(self) -> bool | None:
        """Whether the drafter fits beside the model, on every device; None: memory unknown."""
        if not isinstance(self.drafter, PlacedDrafter) or self.drafter.memory is None:
            margin = self.memory.margin_bytes
            return None if margin is None else margin >= self.drafter.memory_bytes
        left = [part.margin_bytes for part in self.memory.devices]
        needed = [part.total_bytes for part in self.drafter.memory.devices]
        known = [margin - more for margin, more in zip(left, needed, strict=True) if margin is not None]
        return all(margin >= 0 for margin in known) if known else None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and text, for --json."""
        from .report.drafting import drafting_data

        return drafting_data(self)

    def __repr__(self) -> str:
        from .report.drafting import drafting_page
        from .report.layout import Style

        return "\n".join(drafting_page(self, Style()))


def drafting_gain(
    request: Request,
    *,
    draft: Request | None = None,
    mtp: bool = False,
    ngram_coverage: float | None = None,
    acceptances: Sequence[float] = ACCEPTANCES,
    longest: int = LONGEST_DRAFT,
    occupied: int | None = None,
    efficiency: Efficiency | None = None,
) -> DraftingGain:
    """Speculation on a request's machine, with one of: a draft model's request, the model's MTP layers, n-grams.

    `acceptances`: probabilities that a drafted token is accepted; `ngram_coverage`: share of steps in which the text
    repeats itself; `occupied`: by default the prompt and half of the output. Raises InputError without exactly one.
    """
    if (draft is not None) + mtp + (ngram_coverage is not None) != 1:
        raise InputError("drafts: name one drafter: a draft model, MTP layers or n-grams")
    if not acceptances or longest < 1:
        raise InputError("drafts: needs at least one acceptance, and drafts of at least 1 token")
    if longest > LONGEST_CONSIDERED:
        raise InputError(f"drafts: of at most {LONGEST_CONSIDERED} tokens, got {longest:,}")
    drafter, kind = _drafter(request, draft, ngram_coverage, efficiency)
    w = request.workload
    held = min(w.prompt + w.output // 2, request.room - 1) if occupied is None else occupied
    where = {"parallel": float(w.parallel), "occupied": float(held + 1)}
    times, work = RequestTimes(request, efficiency), server_work(request, drafter.rolls_back)
    alpha, lengths = np.array(acceptances, float), np.arange(longest + 1.0)
    curves = speculate(times, drafter, acceptance=alpha[:, None], draft_length=lengths, work=work, **where)
    return DraftingGain(
        request=request,
        drafter=drafter,
        work=work,
        kind=kind,
        memory=memory_plan(request.model, request.weights, w, request.system, request.placement),
        acceptances=tuple(acceptances),
        curves=curves,
        best=np.asarray(best_draft_length(times, drafter, acceptance=alpha, longest=longest, work=work, **where)),
        break_even=np.asarray(
            break_even_acceptance(times, drafter, draft_length=lengths[1:], work=work, **where), float
        ),
        parallel=w.parallel,
        occupied=held,
    )


def _drafter(
    request: Request, draft: Request | None, coverage: float | None, efficiency: Efficiency | None
) -> tuple[Drafter, str]:
    if draft is not None:
        if abs(draft.model.vocab - request.model.vocab) > VOCAB_DIFFERENCE:
            raise InputError(
                f"drafts: {draft.model.id} has {draft.model.vocab:,} tokens in its vocabulary, {request.model.id} "
                f"{request.model.vocab:,}; a draft model needs the same vocabulary"
            )
        return model_drafter(draft, efficiency), f"{draft.model.name} · {draft.quantisation}"
    if coverage is not None:
        return NgramDrafter(coverage), f"n-grams that find something in {coverage:.0%} of the steps"
    return mtp_drafter(request, efficiency), "its MTP layers"
