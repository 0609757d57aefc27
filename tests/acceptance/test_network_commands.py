"""`milepost network check` and `draw` as a user runs them, and the commands of docs/network.md."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from milepost.network import description, parse_network

from .conftest import ROOT
from .process import environment, refused

EXAMPLES = ROOT / "examples" / "networks"
PAGE = (ROOT / "docs" / "network.md").read_text()


def test_a_check_says_what_the_network_is_and_warns(milepost):
    done = milepost("network", "check", EXAMPLES / "figure1.toml")
    assert done.returncode == 0, done.stderr
    assert "5 cells, 14 brokers, 14 virtual brokers, 4 link bundles, 8 links" in done.stdout
    assert done.stderr.count("note: ") == 4
    assert "\x1b" not in done.stdout + done.stderr


def test_all_problems_are_listed_and_escaped(milepost, tmp_path):
    file = tmp_path / "n.toml"
    file.write_text('name = "\\u001b[31mred"\n[brokers]\na = "h:1"\nb = "h:1"\n[cells.c]\nbrokers = ["a", "B"]\n')
    text = refused(
        milepost("network", "check", file), "has 5 problems:", "is not a name", "[brokers] b: is in no cell",
        "[brokers] b: has the address of a", "unknown broker 'B'; did you mean 'b'?",
        "has several brokers and no store",
    )  # fmt: skip
    assert "\x1b" not in text
    refused(milepost("network", "draw", file), "has 5 problems:")
    refused(milepost("network", "check", tmp_path / "none.toml"), "cannot read")


def test_a_drawing_fits_a_pipe(milepost):
    done = milepost("network", "draw", EXAMPLES / "figure1.toml")
    assert done.returncode == 0, done.stderr
    assert "╠══╡ c1  c2  s1 │" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_drawing_as_svg(milepost, tmp_path):
    out = tmp_path / "out.svg"
    done = milepost("network", "draw", EXAMPLES / "figure1.toml", "--svg", out, "--tree", "tree1")
    assert (done.returncode, done.stdout) == (0, f"wrote {out}\n"), done.stderr
    assert ElementTree.parse(out).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    refused(milepost("network", "draw", EXAMPLES / "figure1.toml", "--svg", tmp_path / "no" / "x.svg"), "No such file")


def test_an_unknown_tree_is_named(milepost):
    refused(
        milepost("network", "draw", EXAMPLES / "figure1.toml", "--tree", "tree2"),
        "has no tree 'tree2'; did you mean 'tree1'?",
    )


@pytest.mark.parametrize("block", re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_the_commands_of_the_page_print_what_it_shows(block, tmp_path):
    """With the examples in the folder of the command, so that `--svg` writes there."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = []
    for line in block.splitlines():
        if line.startswith("$ "):
            name, *rest = shlex.split(line.removeprefix("$ "))
            assert name == "milepost"
            done = subprocess.run(
                [sys.executable, "-m", "milepost.cli", *rest], cwd=tmp_path, env=environment(COLUMNS="80"),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
            )  # fmt: skip
            lines += [line, *(each.rstrip() for each in done.stdout.splitlines())]
    assert lines == block.splitlines()


def test_the_files_of_the_page_are_networks_with_every_key():
    texts = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert texts
    for text in texts:
        parse_network(text)
    for kind in (description.Description, description.CellEntry, description.BundleEntry, description.TreeEntry):
        assert all(f"`{name}`" in PAGE for name in kind.__struct_fields__), kind


def test_the_drawing_of_the_page_is_the_one_that_the_command_makes(milepost, tmp_path):
    out = tmp_path / "figure1.svg"
    milepost("network", "draw", EXAMPLES / "figure1.toml", "--svg", out)
    assert out.read_text() == (ROOT / "docs" / "figure1.svg").read_text()
    assert "(figure1.svg)" in PAGE


def test_the_examples_have_their_own_stores_and_addresses():
    """Figure 1 and two cells may run on one machine, one after the other; their placeholders name no password."""
    for path in sorted(Path(EXAMPLES).glob("*.toml")):
        values = tomllib.loads(path.read_text())
        assert all(address.startswith("127.0.0.1:") for address in values["brokers"].values())
        assert all(":" not in cell.get("store", "").removeprefix("postgresql://") for cell in values["cells"].values())
