"""The parameters of functions that take the fields of a settings class: their types without bounds, and their help.

`lo.train` and `lo.prune` have one keyword for each field, annotated with its bounds and the help of the command. The
reference shows the type, and the help as its description.
"""

import inspect
from collections.abc import Callable
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, get_args, get_origin


def plain(kind: Any) -> Any:
    """The type without what `Annotated` adds to it, at any depth."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return plain(inner[0])
    if isinstance(kind, UnionType):
        return reduce(or_, map(plain, inner))
    if any(get_origin(part) is Annotated for part in inner):
        return origin[tuple(map(plain, inner))]
    return kind


def helps(function: Callable[..., Any]) -> dict[str, str]:
    """The help of each parameter that has one."""
    parameters = inspect.signature(function).parameters.values()
    found = {one.name: [getattr(more, "help", "") for more in get_args(one.annotation)[1:]] for one in parameters}
    return {name: next(filter(None, texts)) for name, texts in found.items() if any(texts)}


def plainly(function: Callable[..., Any]) -> inspect.Signature:
    """The signature with plain types."""
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=plain(one.annotation)) for one in signature.parameters.values()]
    return signature.replace(parameters=parameters)
