"""Text that can rot is checked: sessions are run, and commands, paths, links and figures are those of the project."""

import configparser
import doctest
import importlib.util
import inspect
import re
import shlex
from pathlib import Path

import pytest
import typer

from benchmarks.__main__ import BENCHMARKS
from milepost import config, errors, limits
from milepost.broker import metrics
from milepost.cli import app
from milepost.client import AsyncClient, backoff, outbox, publisher
from milepost.query import parse_schema
from milepost.query.sql import Tables
from milepost.storage import migrations
from milepost.wire import PROTOCOL

ROOT = Path(__file__).resolve().parents[2]
# docs/query.md has a test of its own, beside the query language.
DOCUMENTS = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "query.md")]
PAGES = [*DOCUMENTS, ROOT / "docs" / "query.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_sessions_print_what_they_say(path):
    text = "\n\n".join(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL))
    session = doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0)
    out = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(
        session, out=out.append
    )
    assert result.failed == 0, "".join(out)


def test_the_tour_has_a_session():
    assert ">>> import milepost" in (ROOT / "docs" / "tour.md").read_text()


def commands(path):
    """What a page tells its reader to make: in blocks for a shell, and inline."""
    text = path.read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`(?:[A-Z]+=\S+ )?(make [^`]+)`", text)
    return [line for line in dict.fromkeys([*lines, *inline]) if line.startswith("make ")]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_make_command_of_a_page_is_a_target(path):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in commands(path):
        assert command.split()[1] in targets, command
        for name in re.findall(r"NAME=(\w+)", command):
            assert name in BENCHMARKS, command


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/benchmarks.md"])
def test_the_pages_that_give_make_commands_give_some(name):
    assert commands(ROOT / name)


def sections(path):
    """A page by its headings of the second level."""
    parts = re.split(r"^## (.*)$", path.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_of_benchmarks_has_a_section_and_the_command_for_each():
    found = {heading.partition(":")[0]: text for heading, text in sections(ROOT / "docs" / "benchmarks.md").items()}
    assert found.keys() - BENCHMARKS.keys() == {"How to read the figures"}
    for name in BENCHMARKS:
        assert f"`make bench NAME={name}` " in found[name], name


FIGURE = r"\d[\d.,]* [kM]\b"


def test_the_figures_of_the_readme_are_those_of_the_benchmarks():
    found = {heading.partition(":")[0]: text for heading, text in sections(ROOT / "docs" / "benchmarks.md").items()}
    rows = re.findall(r"^\| (.*) \| `make bench NAME=(\w+)` \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(rows) == 5
    for row, name in rows:
        assert re.search(FIGURE, row), row
        for figure in re.findall(FIGURE, row):
            assert figure in re.findall(FIGURE, found[name]), row


def test_the_times_of_make_are_told_once():
    """They change with the suite, so that a second place would be wrong one day."""
    told = [path.name for path in [*PAGES, ROOT / "Makefile"] if "15 to 20 minutes" in path.read_text()]
    assert told == ["README.md"]
    assert "`make check` takes about a minute" in words("README.md")


@pytest.mark.slow
@pytest.mark.xdist_group("demo")
def test_the_first_command_of_the_readme_runs(demo):
    """`make demo`, from make down. The second, `make test`, is what runs this."""
    assert commands(ROOT / "README.md")[0] == "make demo"
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "claims, each checked" in demo.stdout


def test_every_path_and_module_of_the_guide_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = [path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."]
    named = re.findall(rf"(?<![\w./~-])(?:{'|'.join(folders)})/[\w./-]*\w", text)
    named += re.findall(r"`((?:\w[\w-]*\.(?:md|toml|lock)|Makefile|LICENSE))`", text)
    assert len(named) > 50
    for name in named:
        assert (ROOT / name).exists(), name
    for module in re.findall(r"-m (\w[\w.]*)", text):
        assert importlib.util.find_spec(module) is not None, module


def anchors(path):
    """What links may name in a document: its headings, as they are shown, and anchors."""
    text = path.read_text()
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    shown = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return shown | set(re.findall(r'<a id="([^"]+)">', text))


def test_links_between_documents_lead_somewhere():
    for path in PAGES:
        for target, _, anchor in re.findall(r"\]\(([^)#]*)(#([^)]+))?\)", path.read_text()):
            place = path.parent / target if target else path
            assert place.exists(), f"{path.name}: {target}"
            assert not anchor or anchor in anchors(place), f"{path.name}: {target}#{anchor}"


def words(page):
    return " ".join((ROOT / page).read_text().split())


PAPERS = {
    r"Gryphon": "Achieving Scalability and Throughput in a Publish/Subscribe System",
    r"JPMQ": "JPMQ: An Advanced Persistent Message Queuing Service",
    r"\b[Tt]he paper\b|control experiments": "Control Considerations for Scalable Event Processing",
}


@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if path.parent.name != "decisions"], ids=lambda path: path.name
)
def test_a_page_names_the_paper_that_it_speaks_of(path):
    for mention, title in PAPERS.items():
        if re.search(mention, path.read_text()):
            assert title in words(path), mention


def test_the_service_of_the_page_starts_a_broker_that_there_is(tmp_path):
    text = (ROOT / "docs" / "deployment.md").read_text()
    unit = configparser.ConfigParser(strict=True)
    unit.optionxform = str
    (source,) = re.findall(r"^```ini\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    unit.read_string(source)
    program, command, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, command) == ("milepost", "up")
    (settings,) = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    file = tmp_path / "broker.toml"
    file.write_text(settings)
    up = typer.main.get_command(app).commands["up"]
    given = up.make_context("up", [str(file) if each.endswith(".toml") else each for each in arguments]).params
    assert config.settings(given["config"]).name == "north"
    assert f"a number, {PROTOCOL} today" in words("docs/deployment.md")
    assert "whether the protocol does" in words("docs/deployment.md")
    assert f"The protocol is number {PROTOCOL}" in words("CHANGELOG.md"), "what an upgrade looks for"
    assert f"of version {len(migrations.known())}:" in words("CHANGELOG.md")


def test_figures_that_pages_repeat_are_those_of_the_code():
    settings = config.settings()
    rows, size = f"{outbox.GATHERED_ROWS:,} messages", f"{outbox.PIECES_BYTES >> 20} MB"
    timeout = inspect.signature(AsyncClient).parameters["timeout"].default
    told = {
        "docs/client.md": [
            f"({rows}, or {size})",
            f"`frame_bytes`, a setting of the broker: {settings.frame_bytes >> 20} MB by default, and "
            f"{limits.FRAME_BYTES >> 20} MB at most",
            f"frames of about {publisher.FRAME_BYTES >> 20} MB",
            f"up to {limits.BATCH_BYTES >> 30} GB once",
            f"`put_window` ({settings.put_window >> 20} MB), each by `frame_bytes` ({settings.frame_bytes >> 20} MB)",
            f"`limits.STAGED_BYTES` ({limits.STAGED_BYTES >> 30} GB)",
        ],
        "docs/failures.md": [
            f"up to {rows} or {size} a topic",
            f"{backoff.FIRST_SECONDS:g} s at first and {backoff.LONGEST_SECONDS:g} s later",
            f"`timeout`, {timeout:g} s",
            f"`queue_lease_s`, {settings.queue_lease_s:g} s",
            f"`lease_s`, {settings.lease_s:g} s",
            f"three heartbeats of silence, {3 * settings.heartbeat_s:g} s",
        ],
    }
    assert settings.remember_s == 86_400  # "Keys are remembered for a day"
    for page, texts in told.items():
        for text in texts:
            assert text in words(page), text


def test_the_codes_and_metrics_of_the_page_for_operators_are_those_of_the_code():
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \| ", text[text.index("\n## When something is wrong") :], re.MULTILINE)
    told = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert len(told) > 30
    assert told <= {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    source = inspect.getsource(metrics)
    for metric in re.findall(r"`(milepost_\w+)", text):
        assert f'"{metric.removesuffix("_total")}"' in source, metric


def test_a_list_of_the_page_on_queues_has_a_table_of_its_own():
    (text,) = re.findall(r"`(box: .*?)`", words("docs/queues.md"))
    assert [table.path for table in Tables(parse_schema(text), 1).all] == [(), ("items",)]


def test_the_glossary_is_in_order():
    terms = re.findall(r"^- \*\*(.+?)\*\*.*[.]$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert terms == sorted(set(terms), key=str.lower)
    assert len(terms) == (ROOT / "docs" / "glossary.md").read_text().count("\n- ")
