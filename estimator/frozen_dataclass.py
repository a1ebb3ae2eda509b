"""`dataclass(frozen=True)` whose methods are shared code, for the modules that every estimate loads.

The standard decorator writes and compiles six functions for each class on import: for the sixty classes of an estimate,
as long as importing numpy takes. Here the standard library reads the fields alone (so that `replace`, `fields` and
`asdict` work as ever), and the methods do what the generated ones do. Only a class that is made often gets a generated
`__init__`, which takes half the time of the shared one. Imports nothing of the package.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

T = TypeVar("T")

OFTEN: Final = 300  # instances: more than the first estimate makes of most classes
_MISSING: Final = dataclasses.MISSING


def _dataclass(*, frozen: bool, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """A class decorator with these two options of `dataclasses.dataclass`; `frozen` must be true."""
    if not frozen:
        raise TypeError("only frozen classes are made here")
    return _with_values if eq else _with_fields


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


def _with_fields(cls: type[T]) -> type[T]:
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    methods: dict[str, Any] = {
        "__init__": _init(cls),
        "__signature__": _Signature(),
        "__repr__": vars(cls).get("__repr__", _repr),
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
    }
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls


def _with_values(cls: type[T]) -> type[T]:
    """The same with equality and hash by the fields' values."""
    made: Any = _with_fields(cls)
    values = attrgetter(*(field.name for field in dataclasses.fields(made) if field.compare))

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    made.__hash__ = vars(made).get("__hash__", hashed)
    made.__eq__ = equal
    return cls


def _init(cls: Any) -> Callable[..., None]:
    fields = dataclasses.fields(cls)
    names = tuple(field.name for field in fields)
    known = frozenset(names)
    defaults = {field.name: field.default for field in fields if field.default is not _MISSING}
    factories = [(field.name, field.default_factory) for field in fields if field.default_factory is not _MISSING]
    has_checks = hasattr(cls, "__post_init__")
    count = 0

    def init(self: Any, *args: Any, **given: Any) -> None:
        nonlocal count
        count += 1
        if count == OFTEN:
            cls.__init__ = _generated_init(cls)
        if args:
            given = dict(**dict(zip(names, args)), **given)  # noqa: B905 - a TypeError for a field that is given twice
        values = defaults | given
        for name, factory in factories:
            if name not in values:
                values[name] = factory()
        if values.keys() != known or len(args) > len(names):
            raise _wrong_arguments(cls, args, given)
        self.__dict__.update(values)
        if has_checks:
            self.__post_init__()

    return init


def _generated_init(cls: Any) -> Any:
    fields = [(field.name, field.type, field) for field in dataclasses.fields(cls)]
    checks = {"__post_init__": None} if hasattr(cls, "__post_init__") else {}  # it asks only whether there are any
    made: Any = dataclasses.make_dataclass(cls.__name__, fields, namespace=checks, repr=False, eq=False, frozen=True)
    return made.__init__


def _wrong_arguments(cls: Any, args: Sequence[Any], given: Mapping[str, Any]) -> TypeError:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = [name for name in given if name not in fields]
    if unknown or len(args) > len(fields):
        problem = f"no field is called {', '.join(unknown)}" if unknown else "too many values"
        return TypeError(f"{cls.__qualname__}: {problem}; the fields are {', '.join(fields)}")
    needed = [name for name, field in fields.items() if field.default is field.default_factory is _MISSING]
    return TypeError(f"{cls.__qualname__}: missing {', '.join(name for name in needed if name not in given)}")


class _Signature:
    """What help and `inspect.signature` show of a class."""

    def __get__(self, instance: object, cls: type) -> Any:
        from inspect import Parameter, Signature

        def parameter(field: dataclasses.Field[Any]) -> Parameter:
            made = field.default_factory
            default = field.default if made is _MISSING else made()
            default = Parameter.empty if default is _MISSING else default
            return Parameter(field.name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=field.type)

        return Signature([parameter(field) for field in dataclasses.fields(cls)])


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
