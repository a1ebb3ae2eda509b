"""`llmcalc speculate`: what drafts bring."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from .options import json_option, request_of, request_options
from .output import echo_page, page_style
from .parameter_types import COUNT, LAYERS, SHARE, TOKENS

if TYPE_CHECKING:
    from ..request import Request

_PLACEMENT = (
    "n_cpu_moe",
    "cpu_moe",
    "n_cpu_ffn",
    "overrides",
    "tensor_split",
    "no_kv_offload",
    "no_op_offload",
    "load_mode",
)


@click.command(name="speculate")
@request_options
@click.option("--draft-model", metavar="NAME|FILE", help="A smaller model with the same vocabulary.")
@click.option("--draft-quant", metavar="TYPE", help="Its file type.")
@click.option("--draft-ngl", type=LAYERS, metavar="N", help="Its layers on the GPUs  [all]")
@click.option("--draft-device", type=LAYERS, metavar="I", help="The one GPU that holds it, counted from 0  [all]")
@click.option("--mtp", is_flag=True, help="The model's own MTP (NextN) layers.")
@click.option("--ngram", type=SHARE, metavar="SHARE", help="Look-up in the text; share of steps that find something.")
@click.option("--acceptance", type=SHARE, multiple=True, metavar="P", help="Chance of a drafted token  [0.5 … 0.9]")
@click.option(
    "--accepted-share", type=SHARE, metavar="P", help="Measured share of drafted tokens, with --measured-length."
)
@click.option("--measured-length", type=COUNT, metavar="N", help="Draft length of that measurement.")
@click.option("--longest", type=COUNT, default=16, show_default=True, metavar="N", help="Longest draft to consider.")
@click.option("--occupied", type=TOKENS, metavar="N", help="Positions in the cache  [prompt and half the output]")
@json_option
def command(as_json: bool, **given: Any) -> None:
    """Speculative decoding: speed-up by draft length, the best length, and the acceptance from which drafts pay.

    The model verifies a draft in one pass, which reads its weights once (of a mixture, the experts of all drafted
    tokens) and yields the accepted tokens and one more. With one --acceptance the whole curve is shown, else the best
    length for several.

    \b
    Examples:
      llmcalc speculate --gpu rtx4090 -m qwen3-32b --draft-model qwen3-0.6b --draft-quant q8
      llmcalc speculate --gpu rtx4090 -m qwen3.6-27b --mtp --acceptance 0.8
      llmcalc speculate --gpu rtx4090 -m llama3-8b --ngram 0.4 --acceptance 0.9
      llmcalc speculate --gpu rtx4090 -m qwen3.6-27b --mtp --accepted-share 0.62 --measured-length 3
    """
    from ..drafting import ACCEPTANCES, drafting_gain
    from ..report.drafting import drafting_page
    from ..speculative import acceptance_of

    if (given["accepted_share"] is None) != (given["measured_length"] is None):
        raise click.UsageError("--accepted-share and --measured-length go together")
    acceptances = list(given["acceptance"])
    if given["accepted_share"] is not None:
        acceptances.append(float(acceptance_of(given["accepted_share"], given["measured_length"])))
    gain = drafting_gain(
        request_of(given),
        draft=_draft(given),
        mtp=given["mtp"],
        ngram_coverage=given["ngram"],
        acceptances=acceptances or ACCEPTANCES,
        longest=given["longest"],
        occupied=given["occupied"],
    )
    if as_json:
        click.echo(json.dumps(gain.to_dict(), indent=2, ensure_ascii=False))
        return
    echo_page(drafting_page(gain, page_style()))


def _draft(given: dict[str, Any]) -> Request | None:
    """The draft model on the same machine, in the same context, with a placement of its own."""
    if given["draft_model"] is None:
        if given["draft_ngl"] is not None or given["draft_device"] is not None:
            raise click.UsageError("--draft-ngl and --draft-device are of a --draft-model")
        return None
    device = given["draft_device"]
    own = dict.fromkeys(_PLACEMENT) | {
        "ngl": given["draft_ngl"],
        "split_mode": None if device is None else "none",
        "main_gpu": device,
        "kv_type_k": "f16",  # llama.cpp's default for drafts, whatever the model has
        "kv_type_v": "f16",
    }
    return request_of(given | {"model": given["draft_model"], "quant": given["draft_quant"]} | own)
