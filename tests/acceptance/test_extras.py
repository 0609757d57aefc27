"""What is not installed is named, with the extra that has it: every package of an extra, wherever it is needed."""

import json
import re
import subprocess
import sys
import tomllib

import pytest

from .conftest import ROOT

PIPELINE = 'name = "p"\ninput = "e"\ntime = "at"\n'
TABLE = '[[tier1]]\nenrich = { table = "t", url = "URL", by = "host", take = ["name"] }\n'
EVENT = "e: [at: timestamp, host: string]"
CLIENT = "import milepost; milepost.Client('URL', reconnect=False).connect()"
UP = ("up", "--listen", "127.0.0.1:0", "--store", "STORE", "--http", "")

# By extra and module: what needs it, as a command or as a program, and how the sentence begins.
NEEDED = {
    "server": [
        ("numba", ("up",), "a broker needs numba"),
        ("numba", ("warm",), "a broker needs numba"),
        ("numba", ("bench", "control"), "a broker needs numba"),
        ("numba", "import milepost.testing", "a broker needs numba"),
        ("sqlalchemy", ("up",), "a broker needs sqlalchemy"),
        ("sqlalchemy", "import milepost.testing", "a broker needs sqlalchemy"),
        ("sqlalchemy", "from milepost.broker import Broker", "a broker needs sqlalchemy"),
        ("sqlalchemy", CLIENT, "queues without a broker need sqlalchemy"),
        ("greenlet", CLIENT, "queues without a broker need greenlet"),
        ("psycopg", CLIENT, "a store in PostgreSQL needs psycopg"),
        ("psycopg", ("up", "--listen", "127.0.0.1:0", "--store", "URL"), "a store in PostgreSQL needs psycopg"),
        ("psycopg", ("pipeline", "check", "TABLE", "--schema", EVENT), "tables in PostgreSQL need psycopg"),
        ("zmq", (*UP, "--zmq", "127.0.0.1:0"), "ZeroMQ needs pyzmq"),
        ("zmq", "from milepost.gateway.zmq import Gateway", "ZeroMQ needs pyzmq"),
        ("bson", (*UP, "--zmq", "127.0.0.1:0"), "ZeroMQ needs pymongo"),
        ("bson", "from milepost.gateway.zmq import Gateway", "ZeroMQ needs pymongo"),
        ("networkx", ("network", "draw", "NETWORK"), "a network of brokers needs networkx"),
        ("prometheus_client", (*UP[:-1], "127.0.0.1:0"), "metrics need prometheus-client"),
    ],
    "spark": [
        ("pyspark", ("pipeline", "run", "PIPELINE"), "pipelines need pyspark"),
        ("pyspark", "from milepost.pipeline import Runner", "pipelines need pyspark"),
        ("pyspark", "import milepost.pipeline; milepost.pipeline.register", "pipelines need pyspark"),
        ("pyspark", "from milepost.pipeline.session import make_session; make_session('p')", "pipelines need pyspark"),
        ("pyspark", "import milepost.query.spark", "columns of Spark need pyspark"),
        ("pyspark", ("bench", "control"), "pipelines need pyspark"),
        ("pandas", ("pipeline", "run", "PIPELINE"), "pipelines need pandas"),
        ("sqlalchemy", ("pipeline", "check", "TABLE", "--schema", EVENT), "tables in databases need sqlalchemy"),
        ("control", "from milepost.pipeline.control.lqr import _dlqr; _dlqr()", "balancing more than two lanes needs"),
        ("control", ("bench", "control"), "experiments need control"),
        ("matplotlib", ("pipeline", "run", "PIPELINE", "--report", "r.svg"), "a report that is drawn needs matplotlib"),
        (
            "matplotlib",
            "from milepost.pipeline.control.report import overview; from milepost.pipeline.control import Trace; "
            "overview(Trace(), 'STORE')",
            "a report that is drawn needs matplotlib",
        ),
    ],
}
WITHOUT = {"uvloop": "up warns, and goes on without it"}
PACKAGES = {"bson": "pymongo", "zmq": "pyzmq", "prometheus_client": "prometheus-client", "matplotlib": "control"}

# Each case in a fork of one process: starting Python for each would take longer than all of them.
PROGRAM = """
import json, os, sys, tempfile, traceback
import milepost.cli
for module, asked in json.load(sys.stdin):
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = 70
            try:
                sys.modules[module] = None
                if isinstance(asked, str):
                    exec(asked)
                else:
                    sys.argv = ["milepost", *asked]
                    milepost.cli.main()
            except SystemExit as error:
                code = error.code
            except milepost.errors.MissingPackage as error:
                print(error, file=sys.stderr)
                code = 1
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        print(json.dumps([os.waitstatus_to_exitcode(status), said.read().decode()]), flush=True)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extras")
    (folder / "p.toml").write_text(PIPELINE)
    (folder / "t.toml").write_text(PIPELINE + 'output = "o"\n' + TABLE.replace("URL", "postgresql://127.0.0.1:1/base"))
    names = {
        "URL": "postgresql://127.0.0.1:1/base", "STORE": str(folder / "own.db"), "PIPELINE": str(folder / "p.toml"),
        "TABLE": str(folder / "t.toml"), "NETWORK": str(ROOT / "examples" / "networks" / "two_cells.toml"),
    }  # fmt: skip

    def filled(asked):
        if isinstance(asked, str):
            return asked.replace("URL", names["URL"]).replace("STORE", names["STORE"])
        return [names.get(each, each) for each in asked]

    cases = [(module, filled(asked)) for some in NEEDED.values() for module, asked, _ in some]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(cases), capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return iter([json.loads(line) for line in done.stdout.splitlines()])


def test_what_is_missing_is_named_with_its_extra_in_one_sentence(told):
    wrong = []
    for extra, some in NEEDED.items():
        for module, asked, words in some:
            code, said = next(told)
            sentence = f"{words}.*, which is not installed: pip install 'milepost\\[{extra}\\]'$"
            lines = 2 if "check" in asked else 1  # which heads the problems of a pipeline with its name
            if code != 1 or len(said.splitlines()) != lines or not re.search(sentence, said.rstrip()):
                wrong.append((module, asked, code, said))
    assert not wrong


def test_every_package_of_an_extra_is_asked_for_here_or_not_imported():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for extra, lines in extras.items():
        covered = {PACKAGES.get(module, module) for module, _, _ in NEEDED.get(extra, [])} | {*WITHOUT, "control"}
        for package in (re.match(r"[\w-]+", line)[0] for line in lines if not line.startswith("milepost")):
            imported = re.search(rf"^\s*(import|from) {package.replace('-', '_')}\b", source, re.MULTILINE)
            assert package in covered or not imported, (extra, package)


def test_a_client_needs_no_extra(tmp_path):
    """Its commands go on where no package of any extra can be imported."""
    file = tmp_path / "quote.schema"
    file.write_text("quote: [symbol: string, price: double]")
    blocked = sorted({module for some in NEEDED.values() for module, _, _ in some} | set(WITHOUT))
    program = f"import sys; sys.modules.update(dict.fromkeys({blocked})); import milepost.cli; milepost.cli.main()"
    shown, put = (
        subprocess.run([sys.executable, "-c", program, *asked], capture_output=True, text=True, check=False, timeout=60)
        for asked in (("type", "show", str(file)), ("put", "quotes", "price=1", "--broker", "milepost://127.0.0.1:1"))
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert (put.returncode, len(put.stderr.splitlines())) == (1, 1), put.stderr
    assert "no broker" in put.stderr
