"""Ready command lines of llama-server, llama-cli and llama-bench for a request, in parts that belong together.

Options are those of llama.cpp b11434 (common/arg.cpp, tools/llama-bench/llama-bench.cpp). Imports `request` and
`check_command`.
"""

from __future__ import annotations

from typing import Final, Literal

from .check_command import remote_options, shell_word, unusual_options
from .placement_settings import PlacementSettings
from .request import EVERYDAY_PROMPT, Request

Tool = Literal["llama-server", "llama-cli", "llama-bench"]
TOOLS: Final[tuple[Tool, ...]] = ("llama-server", "llama-cli", "llama-bench")
BENCH_TOKENS: Final = 32  # generated at each depth


def command_parts(request: Request, tool: Tool) -> tuple[str, ...]:
    """The tool, then every option with its value."""
    file = f"-m {shell_word(f'{request.model.id}-{request.quantisation}.gguf')}"
    own = _bench_options(request) if tool == "llama-bench" else _run_options(request, tool == "llama-server")
    return (tool, file, *own)


def _run_options(request: Request, server: bool) -> list[str]:
    w = request.workload
    settings = request.settings or PlacementSettings()
    options = [f"-c {w.context}"]
    if settings.ngl is None and _has_gpus(request):
        options.append("-ngl all")
    options += [*settings.flags(), *_cache_and_batches(request)]
    if not w.flash_attention:
        options.append("-fa off")
    options += ["--swa-full"] if w.swa_full else []
    options += ["-kvu"] if w.kv_unified and server else []  # llama-cli has one sequence
    if server or w.parallel > 1:
        options.append(f"-np {w.parallel}")
    return options


def _bench_options(request: Request) -> list[str]:
    """A prompt and some tokens, with an empty cache and at the everyday depth."""
    w = request.workload
    prompt = min(max(w.prompt, EVERYDAY_PROMPT, w.ubatch), request.room)
    depth = min(EVERYDAY_PROMPT, max(request.room - prompt - BENCH_TOKENS, 0))
    depths = f"0,{depth}" if depth else "0"
    options = [f"-p {prompt}", f"-n {BENCH_TOKENS}", f"-d {depths}", f"-fa {'on' if w.flash_attention else 'off'}"]
    options += _cache_and_batches(request)
    if request.settings is not None:
        options += request.settings.bench_flags(request.model.n_layers)
    if not _has_gpus(request):
        options.append("-ngl 0")
    return options


def _cache_and_batches(request: Request) -> list[str]:
    return [*unusual_options(request, "-ctk", "-ctv", "-b", "-ub", "-t"), *remote_options(request)]


def _has_gpus(request: Request) -> bool:
    return request.backend != "CPU" or request.system.remote > 0
