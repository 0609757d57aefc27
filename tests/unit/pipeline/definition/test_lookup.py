"""Tables that events are enriched from, in files and databases; refused when an event would have two rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import ip_network

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from milepost.errors import ConfigError
from milepost.pipeline.definition.lookup import load
from milepost.pipeline.definition.step import Enrich
from milepost.query import kinds


def csv(tmp_path, text: str, **more):
    (tmp_path / "t.csv").write_text(text)
    return Enrich(**{"table": str(tmp_path / "t.csv"), "by": "k", "take": ["v"]} | more)


def test_a_csv_has_types_of_its_own(tmp_path) -> None:
    text = "k,v,w,d,n\n007,1,1.5,2024-02-29,NA\n8,,2.5,2024-03-01,\n"
    found = load(csv(tmp_path, text, take=["v", "w", "d", "n"]), kinds.STRING)
    assert found.keys.to_pylist() == ["007", "8"]  # as the events have them
    assert {name: str(kind) for name, kind in found.types.items()} == {
        "v": "long", "w": "double", "d": "date", "n": "string"
    }  # fmt: skip
    assert found.values.to_pylist() == [
        {"v": 1, "w": 1.5, "d": date(2024, 2, 29), "n": "NA"},
        {"v": None, "w": 2.5, "d": date(2024, 3, 1), "n": None},
    ]
    assert load(csv(tmp_path, text), kinds.INTEGER).keys.to_pylist() == [7, 8]


def test_a_schema_says_the_types(tmp_path) -> None:
    text = "k,v,w\na,007,1.50\nb,8,2.25\n"
    step = csv(tmp_path, text, take=["v", "w"], schema="row: [k: string, v: string, w: decimal(8,2)]")
    found = load(step, kinds.STRING)
    assert found.values.to_pylist() == [{"v": "007", "w": Decimal("1.50")}, {"v": "8", "w": Decimal("2.25")}]
    with pytest.raises(ConfigError, match="schema: it has no 'w', which 'take' names"):
        load(csv(tmp_path, text, take=["w"], schema="row: [v: string]"), kinds.STRING)
    with pytest.raises(ConfigError, match=r"schema: .*expected"):
        load(csv(tmp_path, text, schema="row: [v"), kinds.STRING)
    with pytest.raises(ConfigError, match=r"cannot read .*t\.csv"):
        load(csv(tmp_path, text, schema="row: [v: date]"), kinds.STRING)


def test_parquet(tmp_path) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    table = pa.table(
        {"k": pa.array(["a", "b", None]).dictionary_encode(), "v": pa.array([at, None, at], pa.timestamp("ns"))}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    found = load(Enrich(table=str(tmp_path / "t.parquet"), by="lower(x)", key="k", take={"seen": "v"}), kinds.STRING)
    assert found.keys.to_pylist() == ["a", "b"]  # a row without a key is found by nobody
    assert found.values.to_pylist() == [{"seen": at}, {"seen": None}]
    assert str(found.types["seen"]) == "timestamp"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_tables_and_queries_of_a_database(tmp_path, request: pytest.FixtureRequest, kind: str) -> None:
    url = f"sqlite:///{tmp_path}/t.db" if kind == "sqlite" else request.getfixturevalue("postgresql")
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.begin() as base:
        base.execute(sa.text("create table host (ip text, name text, floor integer)"))
        base.execute(sa.text("insert into host values ('1.1.1.1', 'one', 1), ('2.2.2.2', null, 2)"))
    engine.dispose()
    found = load(Enrich(url=url, table="host", by="ip", take=["name", "floor"]), kinds.STRING)
    assert found.values.to_pylist() == [{"name": "one", "floor": 1}, {"name": None, "floor": 2}]
    step = Enrich(url=url, query="select ip as k, floor * 2 as v from host where floor > 1", by="k", take=["v"])
    assert load(step, kinds.STRING).values.to_pylist() == [{"v": 4}]
    for wrong in ({"query": "select nothing from host"}, {"table": "hots"}):
        with pytest.raises(ConfigError, match=f"cannot read {kind}://"):
            load(Enrich(url=url, by="k", take=["v"], **wrong), kinds.STRING)


def test_a_password_is_not_told() -> None:
    step = Enrich(url="postgresql://ada:secret@127.0.0.1:1/base", table="t", by="k", take=["v"])
    with pytest.raises(ConfigError, match=r"cannot read postgresql://ada@127\.0\.0\.1:1/base") as caught:
        load(step, kinds.STRING)
    assert "secret" not in str(caught.value)


def test_duplicate_keys_are_named(tmp_path) -> None:
    with pytest.raises(
        ConfigError, match=r"t\.csv has a key more than once in 'k': a; each such event would be duplicated"
    ):
        load(csv(tmp_path, "k,v\na,1\nb,2\na,3\n"), kinds.STRING)
    text = "k,v\n" + "".join(f"{number},1\n" for number in [*range(9), *range(9)])
    with pytest.raises(ConfigError, match="has 9 keys more than once in 'k': 0, 1, 2, 3, 4 and 4 more"):
        load(csv(tmp_path, text), kinds.INTEGER)


def test_networks(tmp_path) -> None:
    text = "net,v\n10.0.0.0/8,1\n10.1.2.3,2\n2001:db8::/32,3\n"
    found = load(csv(tmp_path, text, subnet="net"), kinds.STRING)
    assert found.networks == tuple(map(ip_network, ["10.0.0.0/8", "10.1.2.3/32", "2001:db8::/32"]))
    with pytest.raises(
        ConfigError, match=r"'10.1.0.0/8' has bits set behind its prefix; write '10.0.0.0/8'; and 1 more"
    ):
        load(csv(tmp_path, "net,v\n10.1.0.0/8,1\nx,2\n", subnet="net"), kinds.STRING)
    with pytest.raises(ConfigError, match=r"a key more than once in 'net': 2001:db8::/32"):
        load(csv(tmp_path, "net,v\n2001:db8::/32,1\n2001:DB8:0::/32,2\n", subnet="net"), kinds.STRING)
    with pytest.raises(ConfigError, match="an address must be a string, and k is an integer"):
        load(csv(tmp_path, text, subnet="net"), kinds.INTEGER)


def test_uuids_are_compared_as_such(tmp_path) -> None:
    text = "k,v\nA2345678-1234-5678-1234-567812345678,1\n"
    assert load(csv(tmp_path, text), kinds.UUID).keys.to_pylist() == ["a2345678-1234-5678-1234-567812345678"]
    with pytest.raises(ConfigError, match="badly formed"):
        load(csv(tmp_path, "k,v\nx,1\n"), kinds.UUID)


@pytest.mark.parametrize(
    ("text", "more", "by", "said"),
    [
        ("k,v\na,1\n", {"key": "address"}, kinds.STRING, "has no column 'address'; there are k, v"),
        (
            "key,value\na,1\n",
            {"take": ["valeu"], "key": "key"},
            kinds.STRING,
            "has no column 'valeu'; did you mean 'value'?",
        ),
        ("k,v\na,1\n", {}, kinds.DOUBLE, "k is a double, which cannot be a key"),
        ("k,v\na,1\n", {}, kinds.INTEGER, "cannot read"),
        ("k,v\na,\n", {}, kinds.STRING, "give its type with schema ="),
        ("", {}, kinds.STRING, "cannot read"),
    ],
)
def test_tables_that_cannot_be(tmp_path, text: str, more: dict, by: kinds.Scalar, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(csv(tmp_path, text, **more), by)
