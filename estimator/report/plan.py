"""Answers of the planner as pages for the terminal and as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..comparison import machine_name
from ..units import gib
from .layout import Style, columns, duration, fitted, interval, paragraph, rate

if TYPE_CHECKING:
    from ..energy import Tariff
    from ..planner import Arrangement, Goals, Plan
    from ..planner_models import ModelChoices
    from ..planner_upgrades import Upgrade, Upgrades
    from ..planner_users import UsersTable

SCHEMA: Final = "llmcalc.plan/1"
ROWS: Final = 8
UNPRICED_ROWS: Final = 4  # below a table of priced ones
RANKED_BY: Final = {"price": "price", "watts": "power limit", "tokens": "tokens/s", "value": "tokens/s for the price"}
REASONS: Final = {
    "memory": "too little memory",
    "tokens/s": "decode too slow",
    "TTFT": "first token too late",
    "price": "over the price",
    "watts": "over the power",
    "backend": "llama.cpp has no backend",
    "unknown memory": "CPUs and APUs whose memory is what one puts in: say it with --ram",
    "figures that the catalog lacks": "figures that the catalog lacks",
}


def plan_page(plan: Plan, style: Style, rows: int = ROWS, tariff: Tariff | None = None) -> list[str]:
    """Devices that meet the goals: speeds, then what they cost."""
    if not plan.priced and not plan.unpriced:
        return [*_asked(plan, style), "", "Nothing of the catalog meets these goals.", "", *_missed(plan.missed, style)]
    lines = [*_asked(plan, style), ""]
    if plan.priced:
        shown = plan.priced[:rows]
        front = ["*" if on else "" for on in plan.on_front[:rows]]
        heading = f"{len(plan.priced)} kinds of devices do, the best by {RANKED_BY[plan.rank]} first"
        lines += [style.heading(heading), *_speeds(shown, front, plan.goals, style), ""]
        lines += [style.heading("What they cost"), *_costs(shown, tariff, style)]
        lines += paragraph("* none of the others is both cheaper and faster", style.width)
        lines += [f"  … and {more} more (--top)"] if (more := len(plan.priced) - rows) > 0 else []
    if plan.unpriced:
        lines += _unpriced(plan, style, min(rows, UNPRICED_ROWS) if plan.priced and rows <= ROWS else rows)
    return [*lines, "", *_missed(plan.missed, style), *_assumptions(plan, style)]


def _unpriced(plan: Plan, style: Style, rows: int) -> list[str]:
    count, more = len(plan.unpriced), len(plan.unpriced) - rows
    heading = f"{count} more do, whose price is not known" if plan.priced else f"{count} do; no price of them is known"
    return [
        *([""] if plan.priced else []),
        style.heading(f"{heading} (--price NAME=USD gives one)"),
        *_speeds(plan.unpriced[:rows], [""] * rows, plan.goals, style),
        *([f"  … and {more} more (--top)"] if more > 0 else []),
    ]


def _asked(plan: Plan, style: Style) -> list[str]:
    one = next(iter((*plan.priced, *plan.unpriced)), None)
    what = "" if one is None else f"{one.request.model.name} · {one.request.quantisation} · "
    room = "" if one is None else f"{one.request.room:,} tokens of context" + (" each" if plan.goals.users > 1 else "")
    return [style.paint(f"{what}{room}" or "Plan", "bold"), *_goals(plan.goals, style)]


def _goals(goals: Goals, style: Style) -> list[str]:
    return [style.paint(line, "dim") for line in paragraph(goals_text(goals), style.width, "", "  ")]


def goals_text(goals: Goals) -> str:
    """The goals in words."""
    parts = [f"{goals.users} users at once"] if goals.users > 1 else []
    parts += [f"at least {rate(goals.tokens_per_s)} tokens/s"] if goals.tokens_per_s else []
    parts += [f"first token within {duration(goals.ttft_s)}"] if goals.ttft_s < math.inf else []
    parts += [f"at most {goals.price_usd:,.0f} USD"] if goals.price_usd < math.inf else []
    parts += [f"at most {goals.power_watts:,.0f} W"] if goals.power_watts < math.inf else []
    each = " for each of them" if goals.users > 1 and len(parts) > 1 else ""
    return "goal: " + (", ".join(parts) + each if parts else "that it fits")


def arrangement_name(one: Arrangement) -> str:
    """ "2x RTX 3090", and "3 of 2x RTX 3090" for three instances."""
    machine = machine_name(one.request.devices).replace("GeForce ", "")
    if one.instances == 1:
        return machine
    return f"{one.instances} of {machine}"


def _speeds(shown: Sequence[Arrangement], marks: Sequence[str], goals: Goals, style: Style) -> list[str]:
    users = goals.users > 1
    head = ("", "", "tokens/s", "80 % range", *(("all",) if users else ()), "TTFT", "left")
    rows = [
        (
            mark,
            arrangement_name(one),
            rate(one.tokens_per_s),
            interval(one.figures.interval_80),
            *((rate(one.aggregate_tokens_per_s),) if users else ()),
            duration(one.ttft_s),
            gib(one.figures.memory.margin_bytes or 0),
        )
        for mark, one in zip(marks, shown, strict=False)
    ]
    return fitted([head, *rows], "<<>>>>" + (">" if users else ""), style.width, 1, indent=0, gap=1)


def _costs(shown: Sequence[Arrangement], tariff: Tariff | None, style: Style) -> list[str]:
    head = ("", "", "USD", "W", "tok/s/kUSD", "J a token")
    priced = f"{tariff.currency}/Mtok".strip() if tariff else ""
    rows = [("", arrangement_name(one), *_cost_cells(one), *_tariff_cells(one, tariff)) for one in shown]
    table = [(*head, *((priced,) if tariff else ())), *rows]
    return fitted(table, "<<>>>>" + (">" if tariff else ""), style.width, 1, indent=0, gap=1)


def _cost_cells(one: Arrangement) -> tuple[str, ...]:
    value, energy = one.tokens_per_s_per_1000_usd, one.energy
    return (
        "" if one.price_usd is None else f"{one.price_usd:,.0f}",
        "" if one.power_watts is None else f"{one.power_watts:,.0f}",
        "" if value is None else rate(value),
        "" if energy is None else interval((energy.low_j, energy.high_j)),
    )


def _tariff_cells(one: Arrangement, tariff: Tariff | None) -> tuple[str, ...]:
    if tariff is None:
        return ()
    return ("" if one.energy is None else interval(one.energy.price(tariff.per_kwh)),)


def _missed(missed: Mapping[str, int], style: Style) -> list[str]:
    parts = [f"{count} {REASONS.get(reason, reason)}" for reason, count in missed.items()]
    return paragraph("Not suitable: " + "; ".join(parts) + ".", style.width, "", "  ") if parts else []


def _assumptions(plan: Plan, style: Style) -> list[str]:
    costs = [
        "Prices are the catalog's rounded launch or street figures, of the devices alone; --price NAME=USD gives "
        "others. W is the sum of the power limits.",
        "J a token: from 30 % of the limit at work and 5 % at rest to all limits all the time; assumed, devices alone.",
    ]
    notes = [
        *(costs if plan.priced else []),
        f"tokens/s is of one user, {_held(plan)}" + (", all others at it too." if plan.goals.users > 1 else "."),
    ]
    return [line for note in (*notes, *plan.notes) for line in paragraph(note, style.width, "  · ", "    ")]


def _held(plan: Plan) -> str:
    one = next(iter((*plan.priced, *plan.unpriced)))
    return (
        f"with {one.figures.occupied_tokens:,} tokens in the cache; TTFT of a prompt of {one.figures.prompt_tokens:,}"
    )


def users_page(table: UsersTable, style: Style) -> list[str]:
    """Users by number of devices."""
    task = table.task
    title = f"{task.made.model.name} · {task.made.quantisation} · {table.device.name} · {task.context:,} tokens each"
    head = ("devices", "as", "users", "tokens/s each", "80 % range", "all", "TTFT")
    rows = [(str(row.count), *_users_cells(row.users, row.arrangement)) for row in table.rows]
    answer = _users_answer(table)
    return [
        style.paint(title, "bold"),
        *_goals(task.goals, style),
        "",
        *columns([head, *rows], "><>>>>>"),
        "",
        *paragraph(answer, style.width, "", ""),
    ]


def _users_cells(users: int, one: Arrangement | None) -> tuple[str, ...]:
    if one is None:
        return "", "0", "does not fit", "", "", ""
    size = len(one.request.devices)
    shape = f"{one.instances} x {size}" if one.instances > 1 else f"1 of {size}"
    return (
        shape,
        str(users),
        rate(one.tokens_per_s),
        interval(one.figures.interval_80),
        rate(one.aggregate_tokens_per_s),
        duration(one.ttft_s),
    )


def _users_answer(table: UsersTable) -> str:
    wanted, name = table.task.goals.users, table.device.name
    most = table.rows[-1]
    if table.fewest is not None:
        return f"{wanted} user{'s' if wanted > 1 else ''}: {table.fewest} x {name}."
    if not most.users:
        return f"{most.count} x {name} do not meet these goals for one user; the figures are those of one user."
    return f"{wanted} users need more than {most.count} x {name}, which serve {most.users}."


def models_page(choices: ModelChoices, style: Style, rows: int = ROWS) -> list[str]:
    """Models that suit a machine."""
    machine = machine_name(choices.system.devices)
    head = ("model", "type", "params", "active", "tokens/s", "80 % range", "TTFT", "left")
    body = [
        (
            one.info.id,
            one.quantisation,
            _billions(one.total_params),
            _billions(one.active_params) if one.active_params != one.total_params else "",
            rate(one.arrangement.tokens_per_s),
            interval(one.arrangement.figures.interval_80),
            duration(one.arrangement.ttft_s),
            gib(one.arrangement.figures.memory.margin_bytes or 0),
        )
        for one in choices.models[:rows]
    ]
    more = len(choices.models) - rows
    lines = [style.paint(f"Models for {machine}", "bold"), *_goals(choices.goals, style), ""]
    lines += (
        fitted([head, *body], "<<>>>>>>", style.width, 0, indent=0, gap=1)
        if body
        else ["No model of the catalog meets these goals."]
    )
    lines += [f"… and {more} more (--top)"] if more > 0 else []
    rest = f"{choices.missed} models do not meet the goals; {choices.unsupported} cannot be run at this context."
    return [*lines, "", *paragraph(rest, style.width, "", "")]


def _billions(params: int) -> str:
    return f"{params / 1e9:.3g} B" if params >= 1e9 else f"{params / 1e6:.3g} M"


def upgrades_page(result: Upgrades, style: Style, rows: int = ROWS) -> list[str]:
    """A machine as it is, and with one device more."""
    task, now = result.task, result.now
    title = f"{task.made.model.name} · {task.made.quantisation} on {machine_name(result.devices)}, and one device more"
    head = ("", "", "tokens/s", "80 % range", "", "TTFT", "USD")
    body = [("as it is", _verdict(now.fits), *_upgrade_cells(now, 0.0), "")]
    for one in result.upgrades[:rows]:
        figures, price = one.figures, one.added.price_usd
        change = figures.tokens_per_s / now.tokens_per_s - 1
        cost = "" if price is None else f"{price:,.0f}"
        cells = _upgrade_cells(figures, change if now.fits else 0.0)
        body.append((f"+ {one.added.name}", _verdict(figures.fits), *cells, cost))
    notes = ["Layers are split by memory: a second device makes room; it decodes no faster than its share allows."]
    notes += ["Prices are the catalog's rounded launch or street figures; --price NAME=USD gives others."]
    if not now.fits:
        notes.append("What does not fit is shown with the speed that it would have with enough memory.")
    return [
        style.paint(title, "bold"),
        *_goals(task.goals, style),
        "",
        *fitted([head, *body], "<<>>>>>", style.width, 0, indent=0, gap=1),
        *([f"… and {len(result.upgrades) - rows} more (--top)"] if len(result.upgrades) > rows else []),
        "",
        *paragraph(_upgrade_answer(result), style.width, "", ""),
        "",
        *(line for note in notes for line in paragraph(note, style.width, "  · ", "    ")),
    ]


def _upgrade_answer(result: Upgrades) -> str:
    """What lacks now, what another of the same brings, and the cheapest that makes the model fit."""
    now, margin = result.now, result.now.memory.margin_bytes
    parts = ["" if now.fits or margin is None else f"It lacks {gib(-margin)} now."]
    same = next((one for one in result.upgrades if one.added.id == result.devices[-1].id), None)
    parts.append("" if same is None else f"A second {same.added.name}: {_outcome(same)}.")
    priced = [one for one in result.upgrades if one.fits and one.added.price_usd is not None and not now.fits]
    cheapest = min(priced, key=lambda one: one.added.price_usd or 0.0, default=None)
    if cheapest is not None and cheapest is not same:
        parts.append(f"The cheapest that makes it fit: {cheapest.added.name}, {_outcome(cheapest)}.")
    return " ".join(filter(None, parts))


def _outcome(one: Upgrade) -> str:
    figures, price = one.figures, one.added.price_usd
    cost = "" if price is None else f", about {price:,.0f} USD"
    speed = f"{rate(figures.tokens_per_s)} tokens/s ({interval(figures.interval_80)})"
    return f"{_verdict(figures.fits)}, {speed}{cost}"


def _verdict(fits: bool | None) -> str:
    return {None: "unknown", True: "fits", False: "too small"}[fits]


def _upgrade_cells(figures: Any, change: float) -> tuple[str, ...]:
    relative = f"{change:+.0%}".replace("%", " %") if abs(change) >= 0.005 else ""
    return rate(figures.tokens_per_s), interval(figures.interval_80), relative, duration(figures.busy_ttft_s)


def plan_data(plan: Plan) -> dict[str, Any]:
    """Plain numbers, lists and text; unknown figures are null."""
    front = plan.on_front
    priced = [arrangement_data(one) | {"on_front": on} for one, on in zip(plan.priced, front, strict=True)]
    return {
        "schema": SCHEMA,
        "goals": goals_data(plan.goals),
        "rank": plan.rank,
        "priced": priced,
        "unpriced": [arrangement_data(one) for one in plan.unpriced],
        "missed": dict(plan.missed),
        "notes": list(plan.notes),
    }


def goals_data(goals: Goals) -> dict[str, Any]:
    """The goals; null where there is no limit."""
    limits = {"ttft_s": goals.ttft_s, "price_usd": goals.price_usd, "power_watts": goals.power_watts}
    finite = {name: value if value < math.inf else None for name, value in limits.items()}
    return {"tokens_per_s": goals.tokens_per_s, "users": goals.users} | finite


def arrangement_data(one: Arrangement) -> dict[str, Any]:
    """Devices, rates of one user and of all, memory, price and energy."""
    figures, energy = one.figures, one.energy
    return {
        "devices": [device.id for device in one.request.devices],
        "instances": one.instances,
        "backend": one.request.backend,
        "model": one.request.model.id,
        "quantisation": one.request.quantisation,
        "context_per_user": one.request.room,
        "users_per_instance": figures.parallel,
        "occupied_tokens": figures.occupied_tokens,
        "prompt_tokens": figures.prompt_tokens,
        "tokens_per_s": one.tokens_per_s,
        "interval_80": list(figures.interval_80),
        "aggregate_tokens_per_s": one.aggregate_tokens_per_s,
        "ttft_s": one.ttft_s,
        "idle_ttft_s": figures.ttft_s,
        "fits": figures.fits,
        "margin_bytes": figures.memory.margin_bytes,
        "price_usd": one.price_usd,
        "power_watts": one.power_watts,
        "tokens_per_s_per_1000_usd": one.tokens_per_s_per_1000_usd,
        "joules_per_token": None if energy is None else [energy.low_j, energy.high_j],
    }


def users_data(table: UsersTable) -> dict[str, Any]:
    """A row a number of devices."""
    return {
        "schema": SCHEMA,
        "goals": goals_data(table.task.goals),
        "device": table.device.id,
        "fewest": table.fewest,
        "rows": [
            {
                "count": row.count,
                "users": row.users,
                "arrangement": None if row.arrangement is None else arrangement_data(row.arrangement),
            }
            for row in table.rows
        ],
    }


def models_data(choices: ModelChoices) -> dict[str, Any]:
    """A row a model."""
    return {
        "schema": SCHEMA,
        "goals": goals_data(choices.goals),
        "devices": [device.id for device in choices.system.devices],
        "models": [
            {"total_params": one.total_params, "active_params": one.active_params} | arrangement_data(one.arrangement)
            for one in choices.models
        ],
        "missed": choices.missed,
        "unsupported": choices.unsupported,
    }


def upgrades_data(result: Upgrades) -> dict[str, Any]:
    """The machine as it is, and a row a device."""
    return {
        "schema": SCHEMA,
        "goals": goals_data(result.task.goals),
        "devices": [device.id for device in result.devices],
        "now": _figures_data(result.now),
        "upgrades": [
            {"added": one.added.id, "price_usd": one.added.price_usd} | _figures_data(one.figures)
            for one in result.upgrades
        ],
    }


def _figures_data(figures: Any) -> dict[str, Any]:
    return {
        "fits": figures.fits,
        "margin_bytes": figures.memory.margin_bytes,
        "tokens_per_s": figures.tokens_per_s,
        "interval_80": list(figures.interval_80),
        "aggregate_tokens_per_s": figures.aggregate_tokens_per_s,
        "ttft_s": figures.busy_ttft_s,
    }
