"""`llmcalc profile list|show|remove|export|import`: calibrations that were kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .options import json_option
from .output import echo_page, page_style

if TYPE_CHECKING:
    from ..calibration.profiles import Damaged, Profile


@click.group(name="profile")
def command() -> None:
    """Calibrations that were kept. `llmcalc estimate` uses the newest that is of the named device.

    \b
    Examples:
      llmcalc profile list
      llmcalc profile export mine -o mine.yaml
      llmcalc estimate --profile mine --model llama3-8b
    """


@command.command(name="list")
@json_option
def list_command(as_json: bool) -> None:
    """List profiles, one a line, and where they are kept."""
    from ..calibration.profiles import load_all
    from ..report.profiles import profile_rows
    from ..user_folder import profile_folder

    profiles, damaged = load_all()
    _report(damaged)
    if as_json:
        click.echo(json.dumps([_entry(each) for each in profiles], indent=1, ensure_ascii=False))
        return
    where = f"in {profile_folder()}"
    if not profiles:
        click.echo(f"No profiles {where}; `llmcalc calibrate RUNS --save NAME` makes one.")
        return
    echo_page([*profile_rows(profiles), f"{len(profiles)} profile{'' if len(profiles) == 1 else 's'} {where}"])


@command.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show one profile: machine, factors, errors, runs."""
    from ..calibration.profiles import load
    from ..report.profiles import profile_page

    profile = load(name)
    if as_json:
        click.echo(json.dumps(_entry(profile, whole=True), indent=1, ensure_ascii=False))
        return
    echo_page(profile_page(profile, page_style()))


@command.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete a profile."""
    from ..calibration.profiles import remove as delete

    click.echo(f"Removed {delete(name)}")


@command.command()
@click.argument("name")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write  [stdout]")
def export(name: str, output: Path | None) -> None:
    """Print a profile's YAML, or write it to a file, to use elsewhere."""
    from ..calibration.profiles import load, to_text
    from ..whole_files import write_output

    text = to_text(load(name))
    if output is None:
        click.echo(text, nl=False)
        return
    write_output(output, text)
    click.echo(f"Wrote {output}")


@command.command(name="import")
@click.argument("file", type=click.Path(exists=True, path_type=Path, dir_okay=False))
@click.option("--as", "name", metavar="NAME", help="Its name here  [the file's]")
@click.option("--force", is_flag=True, help="Take the place of a profile of that name.")
def import_command(file: Path, name: str | None, force: bool) -> None:
    """Take a profile from a file."""
    from ..calibration.profiles import checked_name, path_of, read, save

    given = checked_name(name or file.name.removesuffix(".yaml").removesuffix(".yml"))
    try:
        profile = read(file, given)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if path_of(given).exists() and not force:
        raise InputError(f"there is a profile {given!r} already; --as another name, or --force to take its place")
    click.echo(f"Saved as profile {given}: {save(profile)}")


def _report(damaged: list[Damaged]) -> None:
    for each in damaged:
        click.echo(f"{each.path}: {each.reason}", err=True)


def _entry(profile: Profile, whole: bool = False) -> dict[str, Any]:
    machines = []
    for machine in profile.machines:
        entry: dict[str, Any] = {"backend": machine.backend, "device": machine.device.id, "runs": len(machine.runs)}
        if whole:
            entry |= {
                "factors": {name: list(value) for name, value in machine.factors.values.items()},
                "spread": dict(machine.spread),
                "errors": dict(machine.errors),
                "runs": [dict(run) for run in machine.runs],
            }
        machines.append(entry)
    return {"id": profile.name, "created": profile.created, "llmcalc": profile.version, "machines": machines}
