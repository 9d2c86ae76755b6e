"""Catalogues: which datasets there are, what they have, and what has changed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._errors import Corrupt, Invalid
from ._native import Catalogue as _Catalogue

Entries = list[dict[str, Any]]
# Changes that are read at once.
CHANGES = 64


class Catalog:
    """A catalogue in a directory or in a bucket. It needs no server.

    An entry is a dictionary: ``name``, ``url``, ``uuid``, ``version``, ``tables``, ``tags``, ``parents``, ``classes``
    and more, and ``change``, the number of the change that published it.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._inner = _Catalogue.open(os.fspath(url))

    @property
    def url(self) -> str:
        """Where it is."""
        return self._inner.url

    def publish(
        self,
        name: str,
        url: str | os.PathLike[str],
        *,
        version: int | None = None,
        tags: Mapping[str, str] | None = None,
        parents: Sequence[tuple[str, int | None]] = (),
        sources: Sequence[Mapping[str, Any]] = (),
        checksums: bool = True,
    ) -> dict[str, Any]:
        """Publishes a version of a dataset (the newest one without ``version``) under a name, and returns its entry.

        :param parents: UUID and version of the datasets that it was made of.
        :param sources: ``name``, ``guid`` and ``events`` of its source files; those of the importer are known already.
        :param checksums: whether each object is read for its Adler-32 and SHA-256.
        :raises Conflict: where the name belongs to another dataset.
        """
        said, _, unfinished = self._inner.publish(
            name, os.fspath(url), version, dict(tags or {}), [*parents], json.dumps([*sources]), checksums
        )
        entry = _entry(json.loads(said))
        if unfinished is not None:
            # The change is there; a page or a hint that only saves requests is not.
            entry["unfinished"] = unfinished
        return entry

    def withdraw(self, name: str, version: int, why: str = "") -> int | None:
        """Takes a version out; the dataset stays. Returns the number of the change, or None where there is no entry."""
        return self._inner.withdraw(name, version, why)

    def list(self) -> Entries:
        """All entries."""
        return [_entry(one) for one in json.loads(self._inner.list())]

    def show(self, name: str, version: int | None = None) -> dict[str, Any]:
        """The entry of a version, the newest one without ``version``.

        :raises Invalid: where there is none.
        """
        said = self._inner.show(name, version)
        if said is None:
            raise Invalid(f"{self.url}: no entry {name}" + ("" if version is None else f" version {version}"))
        return _entry(json.loads(said))

    def find(
        self,
        name: str | None = None,
        *,
        uuid: str | None = None,
        tags: Mapping[str, str] | None = None,
        columns: Sequence[str] = (),
        file: str | None = None,
        run: int | None = None,
        lumi: int | None = None,
        newest: bool = False,
    ) -> Entries:
        """Entries that have all of this. ``*`` and ``?`` in names and values fit any characters and any one character.

        :param file: name or GUID of a source file.
        :raises Corrupt: where entries that may fit cannot be read.
        """
        said, unread = self._inner.find(name, uuid, dict(tags or {}), [*columns], file, run, lumi, newest)
        if unread:
            raise Corrupt(f"{self.url}: entries that may fit cannot be read: {'; '.join(unread)}")
        return [_entry(one) for one in json.loads(said)]

    def columns(self, name: str, version: int | None = None) -> Any:
        """Names and types of the columns of each table."""
        return self._part("columns", name, version)

    def lumis(self, name: str, version: int | None = None) -> Any:
        """Runs and luminosity sections, as in a golden JSON; None where the dataset has none."""
        return self._part("lumis", name, version)

    def sources(self, name: str, version: int | None = None) -> Any:
        """Source files: name, GUID, events."""
        return self._part("sources", name, version)

    def checksums(self, name: str, version: int | None = None) -> Any:
        """Adler-32 and SHA-256 of each object."""
        return self._part("checksums", name, version)

    def changes(self, since: int = 0) -> Iterator[dict[str, Any]]:
        """Changes from a number on, up to the newest one. To follow, ask again from the last number + 1."""
        while True:
            some = json.loads(self._inner.changes(since, CHANGES))
            yield from some
            if len(some) < CHANGES:
                return
            since = some[-1]["number"] + 1

    def _part(self, what: str, name: str, version: int | None) -> Any:
        said = self._inner.part(what, name, version)
        if said is None:
            raise Invalid(f"{self.url}: no entry {name}" + ("" if version is None else f" version {version}"))
        return json.loads(said)

    def __repr__(self) -> str:
        return f"<forebay.Catalog {self.url}>"


def _entry(said: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    change, entry = said
    return entry | {"change": change}


def catalog(url: str | os.PathLike[str]) -> Catalog:
    """A catalogue of datasets."""
    return Catalog(url)
