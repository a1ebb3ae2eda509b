"""What the shell completes after --gpu, --cpu, --model, --quant and --profile: names of catalogs and of kept profiles,
none of which is parsed for it.

A completion begins with what was typed, in whatever way of writing names that was: "rtx40" goes on to "rtx4090", and
"geforce-rtx-40" to "geforce-rtx-4090".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import click
from click.shell_completion import CompletionItem

Completer = Callable[[click.Parameter, click.Context, str], list[CompletionItem]]
CACHE_TYPES: Final = ("f16", "bf16", "f32", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
BACKENDS: Final = ("CUDA", "ROCm", "Vulkan", "Metal", "SYCL", "OpenCL", "CPU")


def complete(command: click.Command, group: str) -> click.Command:
    """Give the options of a command, and of its subcommands, their completions; `group`: its name."""
    for parameter in command.params:
        completer = _completer(parameter, group)
        if completer is not None:
            parameter.shell_complete = partial(completer, parameter)  # type: ignore[method-assign]
    for below in getattr(command, "commands", {}).values():
        complete(below, group)
    return command


def _completer(parameter: click.Parameter, group: str) -> Completer | None:
    if isinstance(parameter, click.Argument):
        by_group = {"hardware": _devices, "models": _models, "profile": _profiles}
        return by_group.get(group) if parameter.name == "name" else None
    found = (_BY_OPTION[name] for name in parameter.opts if name in _BY_OPTION)
    return _devices if {"--gpu", "--cpu"} <= set(parameter.opts) else next(found, None)


def _gpus(_: click.Parameter, __: click.Context, typed: str) -> list[CompletionItem]:
    return _items(
        typed, [("auto", ("auto",)), ("custom", ("custom",)), *_device_names({"gpu", "apu", "apple", "soc"}, typed)]
    )


def _cpus(_: click.Parameter, __: click.Context, typed: str) -> list[CompletionItem]:
    return _items(typed, [("auto", ("auto",)), *_device_names({"cpu", "soc"}, typed)])


def _devices(_: click.Parameter, __: click.Context, typed: str) -> list[CompletionItem]:
    return _items(typed, _device_names(set(), typed))


def _models(_: click.Parameter, __: click.Context, typed: str) -> list[CompletionItem]:
    """Names of the catalog; where none begins so, files."""
    from ..catalog import entries_with

    catalog = entries_with("models", _last(typed))
    return _items(typed, ((id, catalog.names(id)) for id in catalog.ids())) or [CompletionItem(typed, type="file")]


def _quantisations(_: click.Parameter, __: click.Context, typed: str) -> list[CompletionItem]:
    from ..file_types import FILE_TYPES

    return _items(typed, ((name, (name,)) for name in FILE_TYPES))


def _cache_types(_: click.Parameter, __: click.Context, typed: str) -> list[CompletionItem]:
    return _items(typed, ((name, (name,)) for name in CACHE_TYPES))


def _backends(_: click.Parameter, __: click.Context, typed: str) -> list[CompletionItem]:
    return _items(typed, ((name, (name,)) for name in BACKENDS))


def _profiles(_: click.Parameter, __: click.Context, typed: str) -> list[CompletionItem]:
    from ..user_folder import profile_names

    return _items(typed, ((name, (name,)) for name in profile_names()))


_BY_OPTION: Final[dict[str, Completer]] = {
    "--gpu": _gpus,
    "--add": _gpus,
    "--cpu": _cpus,
    "--model": _models,
    "--quant": _quantisations,
    "--kv-type": _cache_types,
    "--kv-type-k": _cache_types,
    "--kv-type-v": _cache_types,
    "--backend": _backends,
    "--profile": _profiles,
}


def _device_names(kinds: set[str], typed: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Ids and names of the devices of these kinds, all where none is given, that may go on from what was typed."""
    from ..catalog import entries_with

    catalog = entries_with("hardware", _last(typed))
    for id in catalog.ids():
        kind = catalog.glance(id, "kind")
        if not kinds or kind is None or kind in kinds:
            yield id, catalog.names(id)


def _last(typed: str) -> str:
    """The name that is being typed, after the last comma."""
    return typed.rpartition(",")[2]


def _items(typed: str, entries: Iterable[tuple[str, tuple[str, ...]]]) -> list[CompletionItem]:
    """A completion for each entry that has a name which goes on from what was typed, after the last comma."""
    from ..names import normalise

    last = _last(typed)
    start = normalise(last)
    items = []
    for id, names in entries:
        if id.casefold().startswith(last.casefold()):
            rest = id[len(last) :]
            items.append(CompletionItem(typed + (rest.lower() if last.islower() else rest)))
            continue
        forms = (normalise(name) for name in names)
        found = next((form for form in forms if form.startswith(start)), None)
        if found is not None:
            items.append(CompletionItem(typed + found[len(start) :], help=id))
    return items
