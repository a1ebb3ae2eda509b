"""The llama-bench command that measures what an estimate predicts.

Imports `request` alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .request import Request


def shell_word(text: str) -> str:
    """`text` as one word of a command to copy: names may come from files that somebody else wrote."""
    if re.fullmatch(r"[\w.+-]+", text, re.ASCII):
        return text
    import shlex

    return shlex.quote(text)


def unusual_options(request: Request, *flags: str) -> list[str]:
    """Those of `flags` whose value is not llama.cpp's own, with that value, in the order asked for."""
    w = request.workload
    known = {
        "-ctk": (w.kv_type_k.lower(), "f16"),
        "-ctv": (w.kv_type_v.lower(), "f16"),
        "-b": (w.batch, 2048),
        "-ub": (w.ubatch, 512),
        "-t": (request.threads, None),
    }
    return [f"{flag} {known[flag][0]}" for flag in flags if known[flag][0] != known[flag][1]]


def remote_options(request: Request) -> list[str]:
    """The servers of remote devices, by names to fill in."""
    servers = ",".join(f"HOST{i}:50052" for i in range(1, request.system.remote + 1))
    return [f"--rpc {servers}"] if servers else []


def check_command(request: Request, occupied: Sequence[int]) -> str:
    """llama-bench with the prompts, depths and settings of the request; llama-batched-bench for several sequences.

    llama-bench measures one sequence; decode at depth d averages over the tokens it writes, hence few of them.
    """
    w = request.workload
    file = shell_word(f"{request.model.id}-{request.quantisation}.gguf")
    options = [f"-fa {1 if w.flash_attention else 0}", *unusual_options(request, "-ub", "-b", "-ctk", "-ctv")]
    if request.backend == "CPU" and not request.system.remote:
        options += ["-ngl 0", *([f"-t {request.threads}"] if request.threads else [])]
    options += remote_options(request)
    if request.settings is not None:
        several = w.parallel > 1
        options += request.settings.flags() if several else request.settings.bench_flags(request.model.n_layers)
    settings = " ".join(options)
    if w.parallel > 1:
        prompt, output = request.prompts[0], max(w.output, 1)
        return (
            f"llama-batched-bench -m {file} -c {w.context} -npp {prompt} -ntg {output} -npl 1,{w.parallel} {settings}"
        )
    prompts = ",".join(map(str, request.prompts))
    depths = ",".join(map(str, occupied))
    return (
        f"llama-bench -m {file} -p {prompts} -n 0 {settings}; llama-bench -m {file} -p 0 -n 32 -d {depths} {settings}"
    )
