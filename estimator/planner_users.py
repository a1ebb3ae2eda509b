"""How many users a number of equal devices serves: one table for one kind of device.

Imports `planner`. A layer split makes room but no speed, so devices are also taken as several instances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .errors import InputError
from .planner import Arrangement, Goals, Task, task
from .system import Device
from .workload import MAX_SEQUENCES


@dataclass(frozen=True)
class UsersRow:
    """So many devices, in the arrangement that serves the most users."""

    count: int
    users: int  # 0: not one
    arrangement: Arrangement | None  # with that many users; of one user where the goals are not met; None: no room


@dataclass(frozen=True)
class UsersTable:
    """Users by number of devices."""

    device: Device
    task: Task
    rows: tuple[UsersRow, ...]

    @property
    def fewest(self) -> int | None:
        """The smallest number of devices that serves the users asked for; None if none of the table does."""
        return next((row.count for row in self.rows if row.users >= self.task.goals.users), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and text, for --json."""
        from .report.plan import users_data

        return users_data(self)

    def __repr__(self) -> str:
        from .report.layout import Style
        from .report.plan import users_page

        return "\n".join(users_page(self, Style()))


def users_table(*, device: Device, most: int = 8, **given: Any) -> UsersTable:
    """Users that 1 to `most` of a device serve within the goals; `given`: the arguments of `planner.task`.

    Raises InputError if the device's memory is unknown.
    """
    asked = task(**given)
    if device.memory_bytes is None:
        raise InputError(f"{device.id}: its memory is unknown; say it with --memory")
    by_size = {size: most_users(asked, (device,) * size) for size in range(1, most + 1)}
    return UsersTable(device, asked, tuple(_row(asked, device, count, by_size) for count in range(1, most + 1)))


def most_users(asked: Task, devices: tuple[Device, ...]) -> int:
    """The most users that one instance of these devices serves within the goals of each, up to llama.cpp's limit."""
    return _largest(lambda users: _serves(asked, devices, users), MAX_SEQUENCES)


def _serves(asked: Task, devices: tuple[Device, ...], users: int) -> bool:
    goals = replace(asked.goals, users=users)
    found = asked.arrange(devices, 1, users)
    return found is not None and not found.misses(_of_one_user(goals))


def _of_one_user(goals: Goals) -> Goals:
    """The goals of a user, without those that are about the purchase."""
    return Goals(goals.tokens_per_s, goals.ttft_s, goals.users)


def _row(asked: Task, device: Device, count: int, by_size: dict[int, int]) -> UsersRow:
    divisors = [size for size in range(1, count + 1) if count % size == 0]
    size = max(divisors, key=lambda one: (by_size[one] * (count // one), -one))
    users = by_size[size] * (count // size)
    if users:
        return UsersRow(count, users, asked.arrange((device,) * size, count // size, users))
    return UsersRow(count, 0, asked.arrange((device,) * count, 1, 1))


def _largest(holds: Any, end: int) -> int:
    """The largest count up to `end` for which `holds`, 0 if none; it is taken to hold for all below that."""
    low, high = 0, end + 1
    while high - low > 1:
        middle = (low + high) // 2 if high <= end else min(max(2 * low, 1), end)
        low, high = (middle, high) if holds(middle) else (low, middle)
        if low == end:
            break
    return low
