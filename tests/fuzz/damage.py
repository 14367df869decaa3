"""How things are damaged: bytes, values of JSON documents, cells."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 5, 2**31, 2**63, 2**64, 10**30, -(10**400), 0.0, -0.5, 0.5, 1e-12, 1e308, 1e400,
    -1e400, float("nan"), "", " ", "x", "0", "4", "nan", "../x", "/proc/version", "\0", "\ud800", "é" * 300,
    "a" * 5000, "<script>", "[bold]x[/nope]", "\x1b[2J", "％", "cat", [], {}, [[]], [None], [0], ["x"], [1, 2, 3],
    {"a": 1}, {"": None}, [[[[[[0]]]]]],
)  # fmt: skip
"""A float beyond the largest is read as infinity; half a surrogate is what `json` makes of a lone escape."""

values = st.one_of(st.sampled_from(HOSTILE), st.integers(), st.floats(), st.text(max_size=20), st.booleans(), st.none())


def document(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes, most: int = 3) -> bytes:
    """A few bits, bytes or pieces changed, taken away, doubled or put in; or cut off."""
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        end = min(len(content), at + draw(st.integers(1, 40)))
        how = draw(st.sampled_from(("flip", "byte", "delete", "insert", "double", "cut", "swap", "zero")))
        if how == "flip" and content:
            content = content[:at] + bytes([content[at] ^ (1 << draw(st.integers(0, 7)))]) + content[at + 1 :]
        elif how == "byte":
            content = content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]
        elif how == "delete":
            content = content[:at] + content[end:]
        elif how == "insert":
            content = content[:at] + draw(st.binary(max_size=20)) + content[at:]
        elif how == "double":
            content = content[:end] + content[at:]
        elif how == "cut":
            content = content[:at]
        elif how == "swap":
            content = content[end:] + content[:end]
        else:
            content = content[:at] + bytes(end - at) + content[end:]
    return content


def paths(value: Any, depth: int = 0) -> list[tuple[Any, ...]]:
    """Where something can be changed in a JSON document; long lists by their first and last entries."""
    out: list[tuple[Any, ...]] = [()]
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value))
        entries = entries if len(entries) <= 4 else entries[:2] + entries[-2:]
    else:
        return out
    return out + [(key, *rest) for key, inner in entries for rest in paths(inner, depth + 1)]


def changed(whole: Any, path: tuple[Any, ...], value: Any, how: str) -> Any:
    """The document with another value at `path`, without it, with it twice, or under another name."""
    if not path:
        return value
    whole = copy.deepcopy(whole)
    at = whole
    for step in path[:-1]:
        at = at[step]
    last = path[-1]
    if how == "set":
        at[last] = value
    elif how == "remove":
        del at[last]
    elif how == "double" and isinstance(at, list):
        at.insert(last, copy.deepcopy(at[last]))
    elif how == "rename" and isinstance(at, dict):
        at[str(value)[:50]] = at.pop(last)
    else:
        at[last] = [at[last]]
    return whole


@st.composite
def damaged_json(draw: st.DrawFn, whole: Any, most: int = 2) -> tuple[str, Any]:
    """A description and the document with one or two places changed."""
    said = []
    for _ in range(draw(st.integers(1, most))):
        path = draw(st.sampled_from(paths(whole)))
        how = draw(st.sampled_from(("set", "set", "set", "set", "remove", "double", "rename", "wrap")))
        value = draw(values)
        whole = changed(whole, path, value, how)
        said.append(f"{how} {'/'.join(map(str, path))} {str(value)[:40]!r}")
    return "; ".join(said), whole
