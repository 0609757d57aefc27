"""What holds for the project as a whole: public names, the lock, the package's parts, its commands."""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

import milepost

PUBLIC = {
    "AsyncClient", "Batch", "Client", "DurableSubscription", "DynamicValue", "Ids", "LogBatch", "MessageId",
    "MessageType", "QueueInfo", "QueueMessage", "Receipt", "Registry", "Retention", "Schema", "Subscription",
    "TopicInfo", "Transaction", "compile", "decode", "encode", "errors", "expression", "ordering", "parse_query",
    "parse_schema", "projection", "reader", "schema_of",
}  # fmt: skip


def test_public_names_are_pinned():
    assert set(milepost.__all__) == PUBLIC
    assert set(dir(milepost)) >= PUBLIC
    for name in PUBLIC:
        assert getattr(milepost, name) is not None


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = milepost.no_such_name


def test_importing_milepost_loads_no_numba():
    """Every public name is used, since some are loaded when first asked for."""
    program = (
        "import sys, milepost\n[getattr(milepost, name) for name in milepost.__all__]\n"
        "print([name for name in ('numba', 'pandas', 'polars', 'lark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "numba" not in done.stdout
    assert "pandas" not in done.stdout
    assert "polars" not in done.stdout


def test_the_lock_pins_every_dependency_and_names_no_host(root):
    lock = (root / "requirements.lock").read_text()
    assert "://" not in lock
    assert not re.search(r"^\s*--?(index|extra-index|find-links|trusted-host|i\b|f\b)", lock, re.MULTILINE)
    pinned = {match[1] for match in re.finditer(r"^([A-Za-z0-9_.-]+)==", lock, re.MULTILINE)}
    unpinned = [line for line in lock.splitlines() if re.match(r"[A-Za-z0-9]", line) and "==" not in line]
    assert not unpinned
    project = tomllib.loads((root / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + [
        line for group in project["dependency-groups"].values() for line in group
    ]
    names = {re.match(r"[A-Za-z0-9_.-]+", line)[0].lower() for line in wanted}
    assert names <= {name.lower() for name in pinned}


def test_versions_agree(root):
    from importlib.metadata import version

    assert version("milepost") == tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]


def test_the_grammars_and_the_typing_marker_are_in_the_package(root):
    """They are read from beside the code, so a wheel without them would fail at the first schema."""
    source = root / "src" / "milepost"
    assert (source / "py.typed").exists()
    assert list(source.rglob("*.lark"))
    packages = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert packages == {"packages": ["src/milepost"]}  # hatchling takes every file of it


@pytest.mark.parametrize(
    ("packages", "more", "said", "code"),
    [
        (("17", "21"), (), "installing Java for Spark with apt-get", 0),
        (("21",), (), "installing Java for Spark with apt-get", 0),  # Debian has one of them, and not always the same
        ((), (), "Spark needs Java 17 or newer: install it", 2),  # no network, or nothing that would do
        ((), ("WITHOUT_JAVA=echo goes on",), "goes on", 0),  # as the demo says
    ],
)
def test_java_is_installed_where_it_can_be_and_asked_for_elsewhere(root, tmp_path, packages, more, said, code):
    has = " ".join(f"openjdk-{each}-jre-headless" for each in packages)
    scripts = {
        "id": "echo 0",
        "apt-get": f"""case "$1" in update) exit 0;; esac
for each in "$@"; do case " {has} " in *" $each "*) printf '#!/bin/sh\\n' >{tmp_path}/java; chmod=1;; esac; done
[ -n "$chmod" ] && {shutil.which("chmod")} +x {tmp_path}/java""",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [shutil.which("make"), "java", *more], cwd=root, env={"PATH": str(tmp_path)}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert said in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (
            "format",
            {
                "one", "nine", "vs_lxml", "vs_orjson", "vs_msgspec", "vs_protobuf", "vs_flatbuffers", "layout_spread",
                "validate_ns", "bytes_per_message", "column_reads_per_s", "optional_ratio", "encode_dicts_per_s",
                "encode_arrow_per_s", "encode_numpy_per_s",
            },
        ),
        ("query", {"rows_per_s", "python_rows_per_s", "optional_ratio", "rates"}),
    ],
)  # fmt: skip
def test_benchmarks_end_with_their_figures(run, name, keys):
    done = run(sys.executable, "-m", "benchmarks", name, QUICK="1")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["bench"] == name
    assert figures["quick"] is True
    assert keys <= figures.keys()
    if name == "format":
        assert len(figures["one"]) == len(figures["nine"]) == len(figures["bytes_per_message"]) == 6


def test_an_unknown_benchmark_is_refused_with_the_known_ones(run):
    done = run(sys.executable, "-m", "benchmarks", "no-such-thing")
    assert done.returncode != 0
    assert "format" in done.stderr
    assert "query" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or sys.version_info >= (3, 14), reason="Atheris has no wheels elsewhere")
def test_guided_fuzzing_runs(run):
    done = run(sys.executable, "-m", "fuzz", "--seconds", "30", "--runs", "50", "--seed", "1", "schema")
    assert done.returncode == 0, done.stdout
    assert "fuzz.schema: 50 inputs, nothing found" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or sys.version_info >= (3, 14), reason="Atheris has no wheels elsewhere")
def test_fuzzing_runs_and_counts_its_inputs(run):
    done = run(sys.executable, "-m", "fuzz", "--seconds", "60", "--runs", "150", "--seed", "1", "--unguided")
    assert done.returncode == 0, done.stdout
    assert len(re.findall(r"fuzz\.(batch|broker|queues|query|schema): [\d,]+ inputs, nothing found", done.stdout)) == 5
