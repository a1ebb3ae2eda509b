"""A measured run: the one record that readers make and that validation, fit and calibration take.

The columns are those of a measurement file (hardware/measurements/public_runs.csv); `hardware/measurements/README.md`
says what each means. Imports nothing of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Phase = Literal["prefill", "decode", "mixed", "aggregate"]
FlashAttention = Literal["0", "1", "auto"]  # as requested
RunClass = Literal[
    "clean-single",
    "multi-device",
    "offload",
    "batched",
    "speculative",
    "fork",
    "other-engine",
    "unresolved",
    "suspicious",
]

COLUMNS: Final = (
    "id", "source", "date", "era", "engine", "build", "backend", "hardware_id", "device_count", "device_detail",
    "model_id", "model_label", "quant", "weights_gib", "params_b", "ngl", "n_cpu_moe", "split_mode", "threads",
    "n_batch", "n_ubatch", "flash_attn", "type_k", "type_v", "phase", "n_prompt", "n_gen", "n_depth", "n_parallel",
    "t_s", "t_s_std", "class", "notes",
)  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """Where a run was read: file ("<text>" and "<stdin>" where there is none) and line, from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measured rate with the settings it was measured under; what the source did not say is None.

    `t_s` counts all tokens of the test: n_prompt + n_gen of every one of `n_parallel` sequences. `n_depth` positions of
    each sequence are in the cache when the test starts.
    """

    id: str | None = None
    source: str | None = None
    date: str | None = None  # YYYY-MM-DD or YYYY-MM, of the run
    era: str | None = None  # half-year of the build: 2025H2
    engine: str = "llama.cpp"
    build: str | None = None  # commit, commit (number) or bNUMBER
    backend: str | None = None  # CUDA, ROCm, Vulkan, Metal, CPU, SYCL, OpenCL …
    hardware_id: str | None = None
    device_count: int | None = None
    device_detail: str | None = None  # the device as driver or operating system name it
    model_id: str | None = None
    model_label: str | None = None  # without quantisation: "llama 8B", which need not be true
    quant: str | None = None  # file type: Q4_K_M; UD-… for a mixture chosen per file
    weights_gib: float | None = None  # Σ tensor bytes / 2³⁰
    params_b: float | None = None  # parameters / 10⁹, as the tool counts them
    ngl: int | None = None
    n_cpu_moe: int | None = None
    split_mode: str | None = None
    threads: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    flash_attn: FlashAttention | None = None
    type_k: str | None = None
    type_v: str | None = None
    phase: Phase
    n_prompt: int = 0
    n_gen: int = 0
    n_depth: int = 0
    n_parallel: int = 1
    t_s: float
    t_s_std: float | None = None
    class_: RunClass | None = None  # column `class`; None: not judged yet
    notes: str | None = None

    # Beyond the columns: what the tools print and the columns do not hold.
    origin: Origin | None = None
    model_file: str | None = None  # path as printed
    architecture: str | None = None  # GGUF architecture name
    host_cpu: str | None = None  # the CPU beside the device
    samples_t_s: tuple[float, ...] = ()  # rate of each repetition
    params_exact: bool = False  # params_b and weights_gib come from integers, not from a rounded print

    @property
    def weights_bytes(self) -> float | None:
        """Σ tensor bytes of the file."""
        return None if self.weights_gib is None else self.weights_gib * 2.0**30

    @property
    def n_params(self) -> int | None:
        """Parameters as the tool counts them, RoPE factors and MTP blocks included where the file has them."""
        return None if self.params_b is None else round(self.params_b * 1e9)


def to_row(run: Run) -> dict[str, str]:
    """The run as a row of a measurement file: column → text, empty where nothing is known."""
    return {column: _text(getattr(run, "class_" if column == "class" else column)) for column in COLUMNS}


def _text(value: object) -> str:
    return "" if value is None else str(value)
