"""Arrow and Parquet in and out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import awkward as ak
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from helpers import same_bits
from test_types import nested, scalars


@pytest.fixture
def ds(place: str) -> forebay.Dataset:
    columns = {**scalars(), **nested(), "half": np.arange(300).astype(np.float16)}
    columns["flag"] = columns.pop("bool")
    return forebay.write(place, columns, titles={"jagged": "a title"}, batch_events=256)


def same(a: forebay.Dataset, b: forebay.Dataset) -> None:
    left, right = a.arrays(how="dict"), b.arrays(how="dict")
    assert list(left) == list(right)
    for name in left:
        assert same_bits(left[name], right[name]), name
        assert a.typenames(name) == b.typenames(name)


def test_arrow_and_back(ds: forebay.Dataset, place: str) -> None:
    table = pa.table(ds)
    assert table.num_rows == 300
    assert str(table.schema.field("half").type) == "halffloat"
    assert table.schema.field("jagged").metadata[b"title"] == b"a title"
    assert not table.schema.field("float32").nullable
    again = forebay.from_arrow(table, f"{place}-again")
    same(again, ds)
    column = again["jagged"]
    assert isinstance(column, forebay.Column)
    assert column.title == "a title"
    assert ak.parameters(again["list_of_records"].array()[0])["__record__"] == "Momentum"
    same(forebay.from_arrow(pa.RecordBatchReader.from_stream(ds), f"{place}-stream"), ds)


def test_parquet_and_back(ds: forebay.Dataset, place: str, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    ds.to_parquet(path, compression="zstd")
    assert pq.ParquetFile(path).metadata.num_row_groups == 2
    same(forebay.from_parquet(path, f"{place}-again"), ds)
    some = forebay.from_parquet([path, path], f"{place}-some", columns="f*")
    assert some.keys() == ["float32", "float64", "fixed", "fixed_of_fixed", "fixed_of_lists", "flag"]
    assert len(some) == 600


def test_a_column_is_an_option_where_it_has_a_null(place: str) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "name": ["a", None], "n": pd.array([1, None], dtype="Int32")})
    ds = forebay.from_arrow(frame, place)
    assert ds.typenames() == {"x": "float64", "name": "?string", "n": "?int32"}
    assert ds.arrays().to_list() == [{"x": 1, "name": "a", "n": 1}, {"x": 2, "name": None, "n": None}]
    lists = pa.table({"l": [[1, None], [2]], "m": [[1], [2, 3]], "o": [None, [1.5]], "s": [{"a": 1}, {"a": None}]})
    ds = forebay.from_arrow(lists, f"{place}-lists")
    assert list(ds.typenames().values()) == ["var * ?int64", "var * int64", "option[var * float64]", "{a: ?int64}"]
    assert ds.arrays().to_list() == lists.to_pylist()


def test_nulls_that_statistics_do_not_tell_are_found(place: str, tmp_path: Path) -> None:
    table = pa.table({"j": [[1], [], [2, 3], []], "k": [[1], [], [None], []], "x": [1, 2, 3, None]})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=2)
    ds = forebay.from_parquet(tmp_path / "in.parquet", place)
    assert list(ds.typenames().values()) == ["var * int64", "var * ?int64", "?int64"]
    assert ds.arrays().to_list() == table.to_pylist()


def test_what_a_dataset_lacks_is_refused_by_name(place: str) -> None:
    with pytest.raises(forebay.Invalid, match="column day"):
        forebay.from_arrow(pa.table({"day": pa.array([1, 2], pa.date32())}), place)


def test_a_real_file_goes_to_parquet_and_back(imported: Callable[[str], str], tmp_path: Path) -> None:
    ds = forebay.open(imported("nanoAOD_2015_CMS_Open_Data_ttbar.root"))
    ds.to_parquet(tmp_path / "out.parquet")
    same(forebay.from_parquet(tmp_path / "out.parquet", tmp_path / "again"), ds)
