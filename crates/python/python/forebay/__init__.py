"""Datasets of event data as awkward arrays.

    >>> import forebay
    >>> ds = forebay.import_root("nano.root", "/data/nano")    # or s3://bucket/prefix
    >>> ds = forebay.open("/data/nano")
    >>> ds["Muon_pt"].array()
    >>> ds.arrays(["Muon_*", "MET_pt"])

What is touched is read, and nothing else; :attr:`Dataset.bytes_read` and :attr:`Dataset.requests` say how much.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._catalogue import Catalog, catalog
from ._dataset import Column, Dataset, Group, Partition, Version, open
from ._errors import (
    Closed,
    Conflict,
    Corrupt,
    Error,
    Fenced,
    Full,
    Internal,
    Invalid,
    NoColumn,
    OutcomeUnknown,
    Unavailable,
)
from ._filter import Filter
from ._join import Joined
from ._lazy import lazy
from ._native import __version__, compact, gc, reclass, refer
from ._root import import_root
from ._write import append, write

if TYPE_CHECKING:
    from ._nano import Runner, nanoevents


def __getattr__(name: str) -> Any:
    # coffea takes a second to import, and is an extra.
    if name in ("Runner", "nanoevents"):
        from . import _nano

        return getattr(_nano, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def from_arrow(source: object, url: str | os.PathLike[str], *, table: str = "Events") -> Dataset:
    """Writes a dataset from a table of Arrow: pyarrow's, or anything with ``__arrow_c_stream__``. Needs pyarrow.

    A column is an option where it has a null. Of a ``RecordBatchReader``, which is read only once, it is one where the
    schema allows nulls.
    """
    from ._arrow import from_arrow

    return from_arrow(source, url, table=table)


def from_parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    url: str | os.PathLike[str],
    columns: Filter = None,
    *,
    table: str = "Events",
) -> Dataset:
    """Writes a dataset from Parquet files with the same columns, row group by row group. Needs pyarrow.

    A column is an option where it has a null; columns whose statistics leave that open are read twice.
    """
    from ._arrow import from_parquet

    return from_parquet(path, url, columns, table=table)


__all__ = [
    "Catalog",
    "Closed",
    "Column",
    "Conflict",
    "Corrupt",
    "Dataset",
    "Error",
    "Fenced",
    "Full",
    "Group",
    "Internal",
    "Invalid",
    "Joined",
    "NoColumn",
    "OutcomeUnknown",
    "Partition",
    "Runner",
    "Unavailable",
    "Version",
    "__version__",
    "append",
    "catalog",
    "compact",
    "from_arrow",
    "from_parquet",
    "gc",
    "import_root",
    "lazy",
    "nanoevents",
    "open",
    "reclass",
    "refer",
    "write",
]
