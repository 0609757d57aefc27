"""Rows from lines and files: all of them, in order, or those before the first that is wrong."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.cli import source
from milepost.errors import ConfigError, InvalidValue

QUOTE = milepost.parse_schema(
    "quote: [symbol: string, price: double, size: int?, note: string?, at: timestamp?] check (price > 0)"
)
ROW = '{"symbol": "IBM", "price": 1.5}'


def rows_of(batches):
    return [row for batch in batches for row in batch.to_pylist()]


def until_error(batches):
    found = []
    with pytest.raises(InvalidValue) as raised:
        found.extend(row for batch in batches for row in batch.to_pylist())
    return found, str(raised.value)


@pytest.fixture
def lines(tmp_path):
    def read(data, schema=QUOTE):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(data)
        return source.from_file(schema, path, lambda read: None)

    return read


@pytest.fixture
def cells(tmp_path):
    def read(text, schema=QUOTE):
        path = tmp_path / "rows.csv"
        path.write_text(text)
        return source.from_file(schema, path, lambda read: None)

    return read


def test_lines_with_and_without_an_end_and_blank_ones(lines):
    assert len(rows_of(lines(f"{ROW}\n\n  \n{ROW}\r\n{ROW}".encode()))) == 3
    assert rows_of(lines(b"")) == []
    assert len(rows_of(lines(f"\ufeff{ROW}\n{ROW}".encode()))) == 2


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ('{"symbol": "IBM", "price": }', "line 3: this is not JSON"),
        ('{"symbol": "IBM", "price": "much"}', "line 3: price: 'much' is no double"),
        ('{"symbol": "IBM", "pirce": 3}', "line 3: there is no field 'pirce'; did you mean 'price'?"),
        ('{"symbol": "IBM", "price": -1}', "line 3: it breaks the rule price > 0"),
        ('{"symbol": "IBM", "price": 1, "at": "noon"}', "line 3: at: 'noon' is no timestamp"),
        ("[1, 2]", "line 3: expected a dict"),
        ("3", "line 3: expected a dict"),
        ('{"symbol": "\udcff"}', "line 3: this is not JSON"),
    ],
)
def test_a_bad_line_is_named_and_those_before_it_come(lines, bad, words):
    data = f"{ROW}\n\n{bad}\n{ROW}\n".encode("utf-8", "surrogateescape")
    found, said = until_error(lines(data))
    assert len(found) == 1
    assert words in said


def test_lines_are_taken_as_they_come():
    """What is in the pipe is read; the rest of a line is waited for."""
    read, write = os.pipe()
    try:
        batches = source.from_lines(QUOTE, read, "pipe")
        os.write(write, f"{ROW}\n{ROW[:9]}".encode())
        assert len(next(batches)) == 1
        os.write(write, f"{ROW[9:]}\n{ROW}\n".encode())
        assert len(next(batches)) == 2
        os.close(write)
        assert list(batches) == []
    finally:
        os.close(read)


def test_a_line_without_end_is_not_kept_for_ever(lines, monkeypatch):
    monkeypatch.setattr(source, "LINE_BYTES", 1000)
    monkeypatch.setattr(source, "READ_BYTES", 100)
    with pytest.raises(InvalidValue, match="line 1: longer"):
        rows_of(lines(b"x" * 2000))


@given(st.lists(st.integers(0, 999), max_size=60), st.integers(1, 50))
def test_however_lines_are_cut_all_rows_come_in_order(tmp_path_factory, numbers, step):
    path = tmp_path_factory.mktemp("lines") / "rows.jsonl"
    path.write_text("".join(f'{{"symbol": "é{number}", "price": 1, "size": {number}}}\n' for number in numbers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "READ_BYTES", step)
        seen = []
        found = rows_of(source.from_file(QUOTE, path, seen.append))
    assert [row["size"] for row in found] == numbers
    assert seen[-1] == path.stat().st_size


def test_csv_by_arrow_and_by_hand_agree(cells, tmp_path):
    text = 'price,symbol,size,note,at\n1.5,IBM,3,,2026-03-02T14:30:00Z\n2,,,"a,\nb",\n\n3,x,4,n,2026-03-02T14:30:00+01'
    quick = rows_of(cells(text))
    slow = rows_of(source._slow_csv(QUOTE, tmp_path / "rows.csv", 0, lambda read: None))
    assert quick == slow
    assert [row["symbol"] for row in quick] == ["IBM", "", "x"]
    assert [row["note"] for row in quick] == [None, "a,\nb", "n"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("IBM,much", "line 3: price: 'much' is no double"),
        ("IBM,-1", "line 3: it breaks the rule price > 0"),
        ("IBM,", "line 3: price: '' is no double"),
        ("IBM", "line 3: 1 values for 2 fields"),
    ],
)
def test_a_bad_line_of_csv_is_named(cells, line, words):
    found, said = until_error(cells(f"symbol,price\nIBM,1\n{line}\nIBM,2\n"))
    assert len(found) == 1
    assert words in said


def test_a_bad_header_of_csv_is_named(cells):
    _, said = until_error(cells("symbol,pirce\nIBM,1\n"))
    assert "line 1: there is no field 'pirce'; did you mean 'price'?" in said


def test_csv_far_into_the_file_goes_on_where_arrow_stopped(cells, monkeypatch):
    monkeypatch.setattr(source, "READ_BYTES", 4096)
    good = "".join(f"s{number},{number + 1}\n" for number in range(5000))
    found, said = until_error(cells(f"symbol,price\n{good}IBM,much\n"))
    assert [row["price"] for row in found] == [float(number + 1) for number in range(5000)]
    assert "line 5002: price" in said


def test_csv_of_lists_is_json_in_its_cells(cells):
    schema = milepost.parse_schema("event: [id: uuid, tags: *(string)*]")
    text = 'id,tags\n12345678-1234-5678-1234-567812345678,"[""a"", ""b""]"\n'
    assert rows_of(cells(text, schema))[0]["tags"] == ["a", "b"]


def test_an_empty_csv_has_no_rows(cells):
    assert rows_of(cells("")) == []
    assert rows_of(cells("symbol,price\n")) == []


def test_parquet_comes_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "FILE_ROWS", 100)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"symbol": ["IBM"] * 250, "price": [1.0] * 250}), path)
    seen = []
    batches = list(source.from_file(QUOTE, path, seen.append))
    assert [len(batch) for batch in batches] == [100, 100, 50]
    assert seen == [100, 200, 250]


def test_a_bad_row_of_parquet_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "FILE_ROWS", 100)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"symbol": ["IBM"] * 250, "price": [1.0] * 240 + [-1.0] * 10}), path)
    found, said = until_error(source.from_file(QUOTE, path, lambda rows: None))
    assert len(found) == 200
    assert "row 241: it breaks the rule price > 0" in said


def test_what_is_no_parquet_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_text("symbol,price\n")
    _, said = until_error(source.from_file(QUOTE, path, lambda rows: None))
    assert "cannot be read as Parquet" in said


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"ends in \.csv"):
        source.from_file(QUOTE, tmp_path / "rows.xml", lambda rows: None)


def test_infinities_are_written_as_text(lines):
    found = rows_of(lines(f'{ROW}\n{{"symbol": "x", "price": "Infinity"}}\n'.encode()))
    assert [row["price"] for row in found] == [1.5, float("inf")]
