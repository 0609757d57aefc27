"""The network file: what is right is read, what is wrong is reported, all of it and nothing else."""

from __future__ import annotations

import contextlib
import copy
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import limits
from milepost.errors import ConfigError, NetworkError
from milepost.network import LinkBundle, Network, VirtualBroker, load_network, parse_network, warnings
from milepost.network.checks import LISTED
from tests.unit.network.networks import descriptions, toml

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "networks"
RIGHT: dict[str, Any] = {
    "name": "net",
    "brokers": {"a1": "h:1", "a2": "h:2", "b1": "h:3", "c1": "h:4"},
    "cells": {
        "a": {"brokers": ["a1", "a2"], "store": "postgresql://u:secret@h/a"},
        "b": {"brokers": ["b1"]},
        "c": {"brokers": ["c1"], "store": "postgresql://u:secret@h/c"},
    },
    "bundles": [
        {"cells": ["a", "b"], "links": [["a1", "b1"], ["a2", "b1"]]},
        {"cells": ["c", "b"], "links": [["c1", "b1"]]},
    ],
}
TRIANGLE = {"cells": ["a", "c"], "links": [["a1", "c1"]]}
EDGES = [["a", "b"], ["b", "c"]]


def wrong(description: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(NetworkError) as raised:
        parse_network(toml(description))
    assert "secret" not in str(raised.value)
    return list(raised.value.problems)


def changed(**changes: Any) -> dict[str, Any]:
    """RIGHT with values at paths: `cells__b__brokers=[]`; in lists, `bundles__0__links`."""
    made = copy.deepcopy(RIGHT)
    for path, value in changes.items():
        place: Any = made
        *way, last = path.split("__")
        for name in way:
            place = place[int(name)] if isinstance(place, list) else place[name]
        place[int(last) if isinstance(place, list) else last] = value
    return made


# What is wrong in one place, and everything that is said about it.
PROBLEMS: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"name": ""}, [("name", "'' is not a name")]),
    ({"name": "a/b"}, [("name", "'a/b' is not a name")]),
    ({"name": "n" * 256}, [("name", "has 256 characters")]),
    ({"nam": 1}, [("", "'nam' is not a known key; did you mean 'name'?")]),
    ({"epoch": 0}, [("epoch", "`int` >= 1")]),
    ({"brokers__a1": 7}, [("brokers", "Expected `str`, got `int` - at `brokers[...]`")]),
    ({"brokers__d1": "h:9"}, [("[brokers] d1", "is in no cell")]),
    ({"brokers__b1": "h:1"}, [("[brokers] b1", "has the address of a1, milepost://h:1")]),
    ({"brokers__b1": "milepost://H:1"}, [("[brokers] b1", "has the address of a1")]),
    ({"brokers__b1": "0.0.0.0:5"}, [("[brokers] b1", "is not an address that other brokers can reach")]),
    ({"brokers__b1": "h:0"}, [("[brokers] b1", "is not an address that other brokers can reach")]),
    ({"brokers__b1": "postgresql://u:secret@h/a"}, [("[brokers] b1", "is not the address of a broker")]),
    ({"brokers__b1": "h:port"}, [("[brokers] b1", "is no address")]),
    ({"cells__b__brokers": ["B1"]}, [
        ("[brokers] b1", "is in no cell"),
        ("[cells.b]", "unknown broker 'B1'; did you mean 'b1'?"),
        ("[[bundles]] 1", "broker 'b1' is not in cell 'b'"),
        ("[[bundles]] 1", "broker 'b1' is not in cell 'b'"),
        ("[[bundles]] 2", "broker 'b1' is not in cell 'b'"),
    ]),
    ({"cells__b__brokers": ["b1", "b1"]}, [("[cells.b]", "names broker 'b1' twice")]),
    ({"cells__b__brokers": 3}, [("[cells.b] brokers", "Expected `array`, got `int`")]),
    ({"cells__b__stor": "x"}, [("[cells.b]", "'stor' is not a known key; did you mean 'store'?")]),
    ({"cells__a__store": None}, [("[cells.a]", "has several brokers and no store")]),
    ({"cells__a__store": "a.db"}, [("[cells.a]", "is not in PostgreSQL")]),
    ({"cells__a__store": "postgresql://u:secret@h"}, [("[cells.a]", "names no database")]),
    ({"cells__a__store": "postgresql://u:secret@h:port/a"}, [("[cells.a]", "cannot be read")]),
    ({"cells__b__store": "postgres://other:secret@h:5432/a"}, [("[cells.b]", "has the store of cell 'a'")]),
    ({"bundles__0__cells": ["a", "A"]}, [("[[bundles]] 1", "unknown cell 'A'; did you mean 'a'?")]),
    ({"bundles__0__cells": ["a"]}, [("[[bundles]] 1 cells", "Expected `array` of length 2")]),
    ({"bundles__0": {"cells": ["a", "a"], "links": [["a1", "a2"]]}}, [
        ("[[bundles]] 1", "connects cell 'a' with itself"),
        ("", "the cells are not connected: there is no way between 2 parts: b, c; a"),
    ]),
    ({"bundles__1": {"cells": ["b", "a"], "links": [["b1", "a1"]]}}, [
        ("[[bundles]] 2", "as [[bundles]] 1 does"),
        ("", "there is no way between 2 parts: a, b; c"),
    ]),
    ({"bundles__0__links": []}, [("[[bundles]] 1", "has no links")]),
    ({"bundles__0__links": [["a1", "b1"], ["a1", "b1"]]}, [("[[bundles]] 1", "has the link ['a1', 'b1'] twice")]),
    ({"bundles__0__links": [["b1", "a1"]]}, [("[[bundles]] 1", "in the wrong order; write ['a1', 'b1']")]),
    ({"bundles__0__links": [["c1", "b1"]]}, [("[[bundles]] 1", "broker 'c1' is not in cell 'a'")]),
    ({"bundles__0__links": [["A1", "b1"]]}, [("[[bundles]] 1", "unknown broker 'A1'; did you mean 'a1'?")]),
    ({"bundles": []}, [("", "there is no way between 3 parts: a; b; c")]),
    ({"trees": [{"name": "t", "bundles": EDGES[:1]}]}, [
        ("[[trees]] 1 't'", "does not connect all cells: there is no way between 2 parts: a, b; c"),
    ]),
    ({"trees": [{"name": "t", "bundles": [*EDGES, ["c", "b"]]}]}, [
        ("[[trees]] 1 't'", "has the bundle ['b', 'c'] twice"),
    ]),
    ({"trees": [{"name": "t", "bundles": [*EDGES, ["c", "a"]]}]}, [
        ("[[trees]] 1 't'", "there is no bundle ['a', 'c']"),
    ]),
    ({"trees": [{"name": "t", "bundles": [*EDGES, ["c", "x"]]}]}, [("[[trees]] 1 't'", "unknown cell 'x'")]),
    ({"trees": [{"name": "t", "bundles": EDGES}] * 2}, [("[[trees]]", "two have the name 't'")]),
    ({"trees": [{"name": "", "bundles": EDGES}]}, [("[[trees]] 1", "'' is not a name")]),
    ({"trees": [{"name": "t", "bundles": EDGES}], "tree_count": 2}, [("tree_count", "is for trees that are made")]),
    ({"tree_count": 17}, [("tree_count", "17 is over NETWORK_TREES = 16")]),
    ({"bundles": [*RIGHT["bundles"], TRIANGLE], "trees": [{"name": "t", "bundles": [*EDGES, ["c", "a"]]}]}, [
        ("[[trees]] 1 't'", "has a cycle: "),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), PROBLEMS, ids=lambda value: str(value)[:60])
def test_a_problem_is_named_with_its_place_and_nothing_else_is(
    changes: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    description = changed(**changes)
    if description["cells"]["a"].get("store") is None:
        del description["cells"]["a"]["store"]
    found = wrong(description)
    assert [place for place, _ in found] == [place for place, _ in expected], found
    for (_, text), (_, part) in zip(found, expected, strict=True):
        assert part in text


def test_all_problems_come_at_once() -> None:
    found = wrong(changed(name="", brokers__d1="h:1", cells__c__brokers=[], bundles__0__links=[]))
    assert len(found) == 7
    assert "has 7 problems:\n" in str(NetworkError("the network", found))
    types = wrong(changed(name=3, epoch="x", cells__b={}, bundles__1__links=7, cells__a__brokers=[1]))
    assert [place for place, _ in types] == ["[cells.a] brokers", "[cells.b]", "[[bundles]] 2 links", "name", "epoch"]


def test_without_cells_and_brokers_there_is_no_network() -> None:
    with pytest.raises(NetworkError, match=r"\[brokers\]: there are none[^$]*\[cells\]: there are none"):
        parse_network('name = "n"\nbrokers = {}\ncells = {}\n')


def test_the_network_of_a_file_is_in_the_order_of_names() -> None:
    network = parse_network(toml(RIGHT))
    assert [broker.address for broker in network.brokers] == [
        "milepost://h:1",
        "milepost://h:2",
        "milepost://h:3",
        "milepost://h:4",
    ]
    assert network.bundle("c", "b") == LinkBundle(("b", "c"), (("b1", "c1"),))  # type: ignore[arg-type]
    assert network.virtual_brokers[1] == VirtualBroker("a", "a2")
    assert network.virtual_brokers[1].name == "a/a2"
    assert [tree.name for tree in network.trees] == ["tree1"]
    assert network.cells_of["b1"] == ("b",)


@given(descriptions())
def test_networks_that_are_right_have_no_problems(description: dict[str, Any]) -> None:
    network = parse_network(toml(description))
    assert len(network.trees) == description["tree_count"]
    warnings(network)


@given(descriptions(), st.randoms(use_true_random=False))
def test_the_order_of_a_file_and_its_comments_do_not_matter(description: dict[str, Any], order: random.Random) -> None:
    again = copy.deepcopy(description)
    for name in ("brokers", "cells"):
        items = list(again[name].items())
        order.shuffle(items)
        again[name] = dict(items)
    order.shuffle(again["bundles"])
    for cell in again["cells"].values():
        order.shuffle(cell["brokers"])
        if "store" in cell:
            cell["store"] = cell["store"].replace("//u@", "//u:pass@")
    for bundle in again["bundles"]:
        order.shuffle(bundle["links"])
        if order.random() < 0.5:
            bundle["cells"] = bundle["cells"][::-1]
            bundle["links"] = [link[::-1] for link in bundle["links"]]
    first, second = (
        parse_network(toml(description)),
        parse_network("# a comment\n" + toml(again).replace("u:pass", "u")),
    )
    assert first == second
    assert first.fingerprint == second.fingerprint
    assert re.fullmatch(r"[0-9a-f]{16}", first.fingerprint)


@given(descriptions())
def test_what_differs_has_another_fingerprint(description: dict[str, Any]) -> None:
    before = parse_network(toml(description)).fingerprint
    for changes in (
        {"epoch": description["epoch"] + 1},
        {"name": "other"},
        {"tree_count": description["tree_count"] + 1},
        {"brokers": dict.fromkeys(description["brokers"], "") | {
            name: address.replace("127.0.0.1", "127.0.0.2") for name, address in description["brokers"].items()
        }},
    ):  # fmt: skip
        assert parse_network(toml(description | changes)).fingerprint != before


def test_a_password_does_not_change_the_fingerprint() -> None:
    other = changed(cells__a__store="postgresql://u:new@h/a?sslmode=require")
    assert parse_network(toml(other)).fingerprint == parse_network(toml(RIGHT)).fingerprint


def test_fingerprints_stay_what_they_are() -> None:
    """Brokers of different versions compare them."""
    assert load_network(EXAMPLES / "figure1.toml").fingerprint == "0a22114058250307"
    assert load_network(EXAMPLES / "two_cells.toml").fingerprint == "0227f8765a5a5c76"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
KEYS = st.sampled_from(
    ["name", "epoch", "brokers", "cells", "bundles", "trees", "tree_count", "links", "store", "a", "b"]
)
NAMES = st.sampled_from(["a", "b", "", "h:1", "postgresql://u@h/a", "\x1b[31m", "ä", "[::1"])
TREES = st.recursive(
    NAMES | VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | NAMES, inner, max_size=4),
    max_leaves=20,
)


def tomlish(value: Any) -> str:
    """A value as TOML, inline."""
    match value:
        case bool():
            return str(value).lower()
        case None:
            return '""'
        case str():
            escaped = "".join(c if c.isalnum() and c.isascii() else f"\\U{ord(c):08x}" for c in value)
            return f'"{escaped}"'
        case list():
            return f"[{', '.join(map(tomlish, value))}]"
        case dict():
            return "{" + ", ".join(f"{tomlish(key)} = {tomlish(each)}" for key, each in value.items()) + "}"
        case _:
            return str(value)


@given(st.dictionaries(KEYS, TREES, max_size=7))
def test_other_toml_is_refused_with_an_error_of_ours(values: dict[str, Any]) -> None:
    text = "".join(f"{key} = {tomlish(value)}\n" for key, value in values.items())
    with contextlib.suppress(ConfigError):  # NetworkError is one
        assert isinstance(parse_network(text), Network)


@given(descriptions(), st.data())
def test_a_value_in_the_wrong_place_is_refused_with_an_error_of_ours(
    description: dict[str, Any], data: st.DataObject
) -> None:
    """One value anywhere in a right network is replaced."""
    place: Any = description
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            place[key] = data.draw(NAMES | st.integers(-2, 20) | VALUES)
            break
        place = place[key]
    text = "".join(f"{name} = {tomlish(value)}\n" for name, value in description.items())
    with contextlib.suppress(ConfigError):  # NetworkError is one
        assert isinstance(parse_network(text), Network)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 20_000, "= 3", "a = " + "9" * 5_000, "a = 1\na = 2", 'name = "\ud800"']
)
def test_what_is_not_toml_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_network(text)


def test_a_file_is_measured_before_it_is_read(tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    with large.open("wb") as file:
        file.truncate(limits.NETWORK_FILE_BYTES + 1)
    with pytest.raises(ConfigError, match="NETWORK_FILE_BYTES"):
        load_network(large)
    with pytest.raises(ConfigError, match="cannot read"):
        load_network(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_network(tmp_path / "binary.toml")


def test_networks_over_a_limit_are_refused() -> None:
    many = {f"b{number}": f"h:{number + 1}" for number in range(limits.NETWORK_CELLS + 1)}
    cells = {name: {"brokers": [name]} for name in many}
    (problem,) = wrong({"name": "n", "brokers": many, "cells": cells})
    assert problem == ("[cells]", "1,001 is over NETWORK_CELLS = 1,000")


def test_a_list_of_problems_has_an_end() -> None:
    found = wrong(changed(bundles=[{"cells": ["x", "y"], "links": [["a1", "b1"]]}] * 200))
    assert len(found) == LISTED + 1
    assert found[-1] == ("", "there are more than 100 problems; correct these first")


def figure1() -> Network:
    return load_network(EXAMPLES / "figure1.toml")


def test_figure_1_survives_each_broker_of_its_backbone() -> None:
    network = figure1()
    everyone = {broker.name for broker in network.brokers}
    for dead in ("e1", "e2"):
        assert all(bundle.usable(everyone - {dead}) for bundle in network.bundles)
    assert not any(bundle.usable(everyone - {"e1", "e2"}) for bundle in network.bundles)
    assert network.trees[0].middle == "e"
    assert network.trees[0].bundles == tuple(bundle.cells for bundle in network.bundles)


def test_single_points_of_failure_are_warned_of() -> None:
    assert [warning.partition(":")[0] for warning in warnings(figure1())] == [
        f"all links of bundle d{n}─e end at d{n}/s{n}" for n in (1, 2, 3, 4)
    ]
    found = warnings(parse_network(toml(RIGHT | {"tree_count": 2})))
    assert len(found) == 4, found
    for part in ("cell b has one broker, b1", "cell c has one broker, c1", "bundle b─c has one link, b1─c1",
                 "trees tree1 and tree2 have the same bundles"):  # fmt: skip
        assert any(part in warning for warning in found), part
