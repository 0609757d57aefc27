"""Text that can rot is run: Python sessions in the README and in docs/, and the commands the README gives."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# docs/query.md has a test of its own, beside the query language.
DOCUMENTS = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "query.md")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_sessions_print_what_they_say(path):
    text = "\n\n".join(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL))
    session = doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0)
    out = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(
        session, out=out.append
    )
    assert result.failed == 0, "".join(out)


def test_the_readme_has_an_example():
    assert ">>> import milepost" in (ROOT / "README.md").read_text()


def commands():
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`(make [^`]+)`", text)
    return [line for line in dict.fromkeys([*lines, *inline]) if line.startswith("make ")]


def test_every_make_command_of_the_readme_is_a_target():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert commands()
    for command in commands():
        assert command.split()[1] in targets, command


@pytest.mark.slow
@pytest.mark.xdist_group("demo")
def test_the_first_command_of_the_readme_runs(demo):
    """`make demo`, from make down. The second, `make test`, is what runs this."""
    assert commands()[0] == "make demo"
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "claims, each checked" in demo.stdout


def test_links_between_documents_lead_somewhere():
    for path in [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
