"""Typed classes of a message type, at run time and as a module that mypy understands."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given

from milepost.errors import SchemaError
from milepost.schema import ddl
from milepost.schema.generate import classes, python_source
from milepost.schema.messagetype import MessageType
from milepost.schema.node import Node, plain
from milepost.schema.python import class_name
from tests.strategies import message_types
from tests.unit.schema.test_ddl import ORDER

ORDER_MESSAGE = ddl.parse(ORDER)
SRC = Path(__file__).parents[3] / "src"

# Names that would hide what the printed module uses, if it were careless.
NASTY = ddl.parse("""
DEFINE MESSAGETYPE Nasty;
NODE node;
  int: INTEGER; str: STRING?; property: STRING; self: INT; members: INT?; datetime: TIMESTAMP; date: DATE; super: INT;
  Iterable: INT; dict: BYTES; MESSAGE_TYPE: INT; parse: INT; builtins: INT; count: INT; one: INT; Any: INT;
  bool: BOOLEAN;
  down: REFERENCE TO references; again: REFERENCE TO node;
END;
NODE references; Mapping: UUID; decimal: DECIMAL(3,1); float: REAL; up: REFERENCE TO node; END;
ROOT node;
END;
""")


def test_classes_are_made_at_run_time() -> None:
    made = classes(ORDER_MESSAGE)
    Order, OrderLine, Item = made["order"], made["order_line"], made["item"]
    item = Item(id=1, name="ink", ean=4006381333931)
    order = Order(id=1, date=None, lines=[OrderLine(line_no=1, amout=2, price=1.5, item=item)])
    assert isinstance(order, Node)
    assert order.lines[0].item.name == "ink"
    assert order["lines"][0].get("item").one is item
    assert [cls.__name__ for cls in made.values()] == ["Order", "OrderLine", "Item"]
    assert type(order.lines).__name__ == "OrderLineReferences"
    assert list(inspect.signature(Order).parameters) == ["id", "date", "lines"]
    assert plain(order)["lines"][0]["item"] == [{"id": 1, "name": "ink", "ean": 4006381333931}]


def test_constructors_want_what_is_required_and_know_what_there_is() -> None:
    order = classes(ORDER_MESSAGE)["order"]
    with pytest.raises(TypeError, match="missing a required argument: 'id'"):
        order()
    with pytest.raises(TypeError, match=r"Order\(\) has no argument 'lins'; did you mean 'lines'"):
        order(id=1, date=None, lins=[])
    assert order(id=1, date=None).lines == []


@given(message_types(checks=True, indexes=True))
def test_every_module_compiles(message_type: MessageType) -> None:
    compile(python_source(message_type), "printed", "exec")


USE_ORDER = """
import datetime

from printed import MESSAGE_TYPE, Item, Order, OrderLine, from_plain

item = Item(id=1, name="ink", ean=4006381333931)
order = Order(id=1, date=datetime.date(2020, 1, 1), lines=[OrderLine(line_no=1, amout=2, price=1.5, item=item)])
name: str = order.lines[0].item.name
also: str = order.lines.item[0].name
number: int = order.lines[0].item.one.ean
read: Order = from_plain({"id": 2, "lines": [{"line_no": 1}]})
assert (name, also, number) == ("ink", "ink", 4006381333931)
assert read.lines.line_no == 1 and type(read.lines[0]) is OrderLine
assert MESSAGE_TYPE.root == order.node_type == "order"
for line in order.lines:
    line.price += 1
assert order.lines.price == 2.5
"""
MISUSE_ORDER = """
from printed import Item, Order

order: Order
order.lins
order.lines[0].item.nam
number: int = order.lines[0].item.name
Item(id=1, name=2, ean=3)
"""
USE_NASTY = """
import datetime
import decimal
import uuid

import printed

below = printed.References(Mapping=uuid.UUID(int=1), decimal=decimal.Decimal("1.5"), float=1.0)
now = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
node = printed.Node(
    int=1, property="p", self=2, datetime=now, date=now.date(), super=3, Iterable=4, dict=b"", MESSAGE_TYPE=5, parse=6,
    builtins=7, count=8, one=9, Any=10, bool=True, down=below,
)
below.up.append(node)
up: int = node.down.up.int
text: str | None = node.down.up.str
share: float = node.down.up[0].down.float
assert (up, text, share, node.down.up.one.count) == (1, None, 1.0, 8)
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy knows of the standard library and of Milepost takes longer to learn than all that is asked here."""
    return tmp_path_factory.mktemp("mypy")


def mypy(folder: Path, cache: Path, use: str) -> str:
    (folder / "use.py").write_text(use)
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={cache}"]
    command = [sys.executable, "-m", "mypy", *options, "use.py", "printed.py"]
    done = subprocess.run(command, cwd=folder, env={"MYPYPATH": str(SRC)}, capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message_type", "use"), [(ORDER_MESSAGE, USE_ORDER), (NASTY, USE_NASTY)], ids=["order", "nasty"]
)
def test_a_printed_module_runs_and_passes_the_type_checker(
    tmp_path: Path, cache: Path, message_type: MessageType, use: str
) -> None:
    (tmp_path / "printed.py").write_text(python_source(message_type))
    assert mypy(tmp_path, cache, use).startswith("Success")
    path = f"{SRC}:{tmp_path}"
    done = subprocess.run(
        [sys.executable, "use.py"], cwd=tmp_path, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_type_checker_finds_what_is_wrong(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "printed.py").write_text(python_source(ORDER_MESSAGE))
    said = mypy(tmp_path, cache, MISUSE_ORDER)
    assert '"Order" has no attribute "lins"' in said
    assert '"ItemReferences" has no attribute "nam"' in said
    assert 'expression has type "str", variable has type "int"' in said
    assert 'Argument "name" to "Item" has incompatible type "int"' in said


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("NODE a; class: INT; END;", "m.a: 'class' is a keyword of Python"),
        ("NODE a; __x: INT; END;", "m.a: '__x' begins with two underscores"),
        ("NODE a; get: INT; END;", "m.a: 'get' is taken by the class itself"),
    ],
)
def test_names_that_classes_cannot_have(nodes: str, message: str) -> None:
    message_type = ddl.parse(f"DEFINE MESSAGETYPE m; {nodes} ROOT a; END;")
    for generate in (classes, python_source):
        with pytest.raises(SchemaError, match=message):
            generate(message_type)


def test_names_that_are_taken_get_an_underscore() -> None:
    nodes = "NODE a; B: INT; END; NODE A; x: INT; END; NODE b; x: INT; END; NODE a_references; x: INT; END;"
    message_type = ddl.parse(f"DEFINE MESSAGETYPE m; {nodes} ROOT a; END;")
    assert [cls.__name__ for cls in classes(message_type).values()] == ["A", "A_", "B_", "AReferences_"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("order_line", "OrderLine"),
        ("orderLine", "OrderLine"),
        ("a.b_c", "ABC"),
        ("_0", "N0"),
        ("_", "N"),
        ("none", "None_"),
    ],
)
def test_class_names(name: str, expected: str) -> None:
    assert class_name(name) == expected
