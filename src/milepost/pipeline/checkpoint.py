"""The folder in which Spark keeps how far a pipeline is, and whose it is.

A checkpoint knows offsets and nothing of what they are offsets of. Used for another pipeline, or for another broker's
topics, it would skip or repeat without a word; so the folder says whose it is, and is refused to others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from milepost.errors import ConfigError
from milepost.pipeline.definition import Pipeline

FILE: Final = "milepost.json"


class Checkpoint:
    """A folder on the driver's file system, or one that all machines of a cluster share."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder.absolute()
        self.shards = 0  # of tier 2's state: as many as when the folder was taken
        self._told = ""  # what the folder is to say, and does not yet

    def claim(self, pipeline: Pipeline, broker_id: str, shards: int) -> None:
        """Take the folder for a pipeline; `ConfigError` when it is another's. One that is new is not marked before
        `keep`: so what is wrong with the pipeline is not wrong with the folder afterwards.
        """
        told = {
            "pipeline": pipeline.name,
            "broker": broker_id,
            "input": list(pipeline.input or pipeline.sources),
            "lanes": pipeline.lanes,
            "memory": memory_of(pipeline),
        }
        path = self.folder / FILE
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found: Any = json.loads(path.read_text()) if path.exists() else None
        except (OSError, ValueError) as error:
            raise ConfigError(f"the checkpoint {self.folder} cannot be used: {error}") from None
        if found is None:
            if any(self.folder.iterdir()):
                raise ConfigError(
                    f"{self.folder} is not empty, and no pipeline's checkpoint; name another folder with --checkpoint"
                )
            self._told = json.dumps({**told, "shards": shards}, indent=2) + "\n"
            self.shards = shards
            return
        for name, ours in told.items():
            theirs = found.get(name)
            if theirs != ours:
                raise ConfigError(f"the checkpoint {self.folder} {_WHY[name].format(theirs=theirs, ours=ours)}")
        # A key's state is in the shard that the number of shards says. Spark goes on with as many partitions, too.
        self.shards = int(found.get("shards", shards))

    def keep(self) -> None:
        """Let the folder say whose it is."""
        if self._told:
            (self.folder / FILE).write_text(self._told)
            self._told = ""


_WHY: Final = {
    "pipeline": "is that of pipeline {theirs!r}, and this one is {ours!r}; name another folder with --checkpoint",
    "broker": "is of a broker that stored {theirs}, and this one stores {ours}: it lost its state, or is another one; "
    "remove the folder to begin anew",
    "input": "is of a pipeline that read {theirs}, and this one reads {ours}; give the pipeline another name",
    "lanes": "is of {theirs} lanes, and there are {ours} now; let it run dry with --once --drain, and give it another "
    "name",
    "memory": "has the state of other rules of tier 2 (windows, sequences, absences, monitors), which cannot go on "
    "with these; let it run dry with --once --drain, and name another folder with --checkpoint: it goes on where the "
    "last mark is",
}


def memory_of(pipeline: Pipeline) -> str:
    """Tells apart what has a state: rules with a memory, and monitors."""
    import hashlib

    told = [repr(rule) for rule in (*pipeline.tier2, *pipeline.monitor)]
    return hashlib.blake2b("\n".join(told).encode(), digest_size=8).hexdigest()
