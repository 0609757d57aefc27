"""The broker's core needs no database, no connection, no clock and no thread. Import contracts say so too."""

import ast
import subprocess
import sys
from pathlib import Path

import milepost

HERE = Path(milepost.__file__).parent
CORE = HERE / "broker" / "core"
MODULES = sorted(
    ".".join(("milepost", *path.relative_to(HERE).with_suffix("").parts)).removesuffix(".__init__")
    for path in CORE.rglob("*.py")
)
FORBIDDEN = {
    "asyncio", "concurrent", "datetime", "os", "psycopg", "selectors", "socket", "sqlalchemy", "sqlite3", "ssl",
    "threading", "time",
}  # fmt: skip

# The packages `milepost` and `milepost.broker` are the faces of the client and of the server, and import both. Empty
# ones take their places, so that what is loaded is what the core asks for.
PROGRAM = """
import importlib, sys, types
for name, path in (("milepost", {here!r}), ("milepost.broker", {broker!r})):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [path]
for module in {modules!r}:
    importlib.import_module(module)
print(*sys.modules)
"""


def imported(tree: ast.Module) -> set[str]:
    """Top-level packages that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


def test_the_core_loads_no_database_and_no_connection():
    program = PROGRAM.format(here=str(HERE), broker=str(HERE / "broker"), modules=MODULES)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"milepost.broker.core.core", "milepost.broker.core.queues.transactions"} <= loaded
    ours = {name for name in loaded if name.startswith("milepost.")}
    assert {name for name in ours if name.split(".")[1] in ("storage", "transport", "client")} == set()
    queues = {name.removeprefix("milepost.queues.") for name in ours if name.startswith("milepost.queues.")}
    assert queues == {"leases", "machine", "open_transaction", "requests", "waiters", "waiting_line"}  # no SQL in them
    assert loaded & {"sqlalchemy", "sqlite3", "psycopg", "numba", "asyncio"} == set()


def test_no_module_of_the_core_imports_a_clock_or_a_thread():
    assert len(MODULES) > 30
    for path in sorted(CORE.rglob("*.py")):
        assert imported(ast.parse(path.read_text())) & FORBIDDEN == set(), path
