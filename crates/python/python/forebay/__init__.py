"""Datasets of event data as awkward arrays.

    >>> import forebay
    >>> ds = forebay.import_root("nano.root", "/data/nano")    # or s3://bucket/prefix
    >>> ds = forebay.open("/data/nano")
    >>> ds["Muon_pt"].array()
    >>> ds.arrays(["Muon_*", "MET_pt"])

What is touched is read, and nothing else; :attr:`Dataset.bytes_read` and :attr:`Dataset.requests` say how much.
"""

from ._dataset import Column, Dataset, Partition, Version, open
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
from ._native import __version__, compact, gc
from ._root import import_root
from ._write import append, write

__all__ = [
    "Closed",
    "Column",
    "Conflict",
    "Corrupt",
    "Dataset",
    "Error",
    "Fenced",
    "Full",
    "Internal",
    "Invalid",
    "NoColumn",
    "OutcomeUnknown",
    "Partition",
    "Unavailable",
    "Version",
    "__version__",
    "append",
    "compact",
    "gc",
    "import_root",
    "open",
    "write",
]
