"""Old names of commands and options: using one gives an error with the new name."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperGroup

COMMANDS: Final = {"define": "create", "drop": "delete", "forward": "transfer"}
OPTIONS: Final = {
    "--dead": "--dead-letter",
    "--most-aborts": "--max-deliveries",
    "--select": "--where",
    "--wait": "--timeout",
}


class CommandGroup(TyperGroup):
    """A group of commands, some of which had other names."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The called command. An old name gives an error with the new one."""
        if args and args[0] not in self.commands and COMMANDS.get(args[0]) in self.commands:
            ctx.fail(f"No such command {args[0]!r}: it is called {COMMANDS[args[0]]!r} now.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command. An error about an old option gives the new name."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            old = getattr(error, "option_name", "")
            if old in OPTIONS:
                error.possibilities = []  # type: ignore[attr-defined]
                error.message = f"No such option: {old}: it is called {OPTIONS[old]} now."
            raise
