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


def check_command(request: Request, occupied: Sequence[int]) -> str:
    """llama-bench with the prompts, depths and settings of the request; llama-batched-bench for several sequences.

    llama-bench measures one sequence; decode at depth d averages over the tokens it writes, hence few of them.
    """
    w = request.workload
    file = shell_word(f"{request.model.id}-{request.quantisation}.gguf")
    settings = f"-fa {1 if w.flash_attention else 0}"
    for flag, value, usual in (
        ("-ub", w.ubatch, 512),
        ("-b", w.batch, 2048),
        ("-ctk", w.kv_type_k.lower(), "f16"),
        ("-ctv", w.kv_type_v.lower(), "f16"),
    ):
        if value != usual:
            settings += f" {flag} {value}"
    if request.backend == "CPU" and not request.system.remote:
        settings += " -ngl 0" + (f" -t {request.threads}" if request.threads else "")
    if request.system.remote:
        settings += " --rpc " + ",".join(f"HOST{i}:50052" for i in range(1, request.system.remote + 1))
    if request.settings is not None:
        flags = request.settings.flags() if w.parallel > 1 else request.settings.bench_flags(request.model.n_layers)
        settings += "".join(f" {flag}" for flag in flags)
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
