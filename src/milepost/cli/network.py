"""`milepost network`: plan and check a network of brokers, defined in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.terminal import Console, echo
from milepost.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from milepost.network import Network, SpanningTree

app = typer.Typer(no_args_is_help=True, help="Plan and check a network of brokers.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="the description of a network, in TOML")]


@app.command(epilog="Example:\n  milepost network check figure1.toml")
def check(file: File) -> None:
    """Say what a network consists of, or all its problems."""
    from milepost.cli import network_picture
    from milepost.network import load_network, warnings

    network = load_network(file)
    console = Console()
    for line in network_picture.summary(network):
        console.print(line, soft_wrap=True)
    for warning in warnings(network):
        Console(stderr=True).print(f"note: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)


@app.command(
    epilog="""Examples:
  milepost network draw figure1.toml
  milepost network draw figure1.toml --svg figure1.svg
  milepost network draw figure1.toml --tree tree2
"""
)
def draw(
    file: File,
    svg: Annotated[
        Path | None, typer.Option(metavar="OUT.svg", help="write an SVG to this file instead of drawing here")
    ] = None,
    tree: Annotated[
        str | None, typer.Option(metavar="NAME", help="the spanning tree to mark; by default the first")
    ] = None,
) -> None:
    """Draw a network: its cells and brokers, its links, and a spanning tree."""
    from milepost.cli import network_picture
    from milepost.network import load_network

    network = load_network(file)
    marked = _tree(network, tree)
    if svg is not None:
        from milepost.network.svg import drawn

        svg.write_text(drawn(network, marked), "utf-8")
        echo(f"wrote {svg}")
        return
    console = Console()
    for line in network_picture.drawn(network, marked, console.width):
        console.print(line, soft_wrap=True)


def _tree(network: Network, name: str | None) -> SpanningTree:
    trees = {tree.name: tree for tree in network.trees}
    if name is None:
        return network.trees[0]
    if name not in trees:
        near = did_you_mean(name, trees) or f"; there are {', '.join(trees)}"
        raise ConfigError(f"network {network.name} has no tree {name!r}{near}")
    return trees[name]
