"""Choice of columns by name: globs, regular expressions and functions, as uproot has them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from ._errors import Invalid, NoColumn

Filter = None | str | Callable[[str], bool] | Iterable[str | Callable[[str], bool]]


def matcher(chosen: Filter) -> Callable[[str], bool]:
    """A function that tells whether a name is chosen: by None, `Muon_*`, `/regex/i`, a function, or any of several."""
    if chosen is None:
        return lambda name: True
    if isinstance(chosen, str):
        regex = re.fullmatch(r"/(.*)/([iumsxa]*)", chosen, re.DOTALL)
        if regex:
            flags = re.RegexFlag(0)
            for flag in regex[2]:
                flags |= re.RegexFlag[flag.upper()]
            pattern = re.compile(regex[1], flags)
            return lambda name: pattern.search(name) is not None
        if is_glob(chosen):
            glob = chosen
            return lambda name: fnmatchcase(name, glob)
        exact = chosen
        return lambda name: name == exact
    if callable(chosen):
        return chosen
    if isinstance(chosen, Iterable):
        each = [matcher(one) for one in chosen]
        return lambda name: any(one(name) for one in each)
    raise Invalid(f"a filter is a string, a function or several of them, not {type(chosen).__name__}")


def is_glob(name: str) -> bool:
    """Whether a string chooses by a pattern."""
    return any(char in name for char in "*?[") or (len(name) > 1 and name[0] == "/" and "/" in name[1:])


def no_column(where: str, name: str, names: Sequence[str]) -> NoColumn:
    """The error for a name that is not there, with near names."""
    lower = name.lower()
    near = [known for known in names if lower and (lower in known.lower())][:5]
    near += [known for known in difflib.get_close_matches(name, names, n=5) if known not in near]
    hint = f"; near: {', '.join(near[:5])}" if near else ""
    return NoColumn(f"{where}: no column {name!r}{hint}")
