"""The folder in which Spark keeps the progress of a pipeline, and the check that the folder belongs to this pipeline.

A checkpoint has offsets, but does not say of which topics. Used with another pipeline or another broker, it would
silently skip or repeat events. So a file in the folder names its owner, and other pipelines are refused.
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
        self.shards = 0  # of tier 2's state: the number at the time the folder was claimed
        self._told = ""  # the owner, not yet written to the folder

    def claim(self, pipeline: Pipeline, broker_id: str, shards: int) -> None:
        """Claim the folder for a pipeline. Raises `ConfigError` when it belongs to another one.

        The owner is written only by `keep`, so that a pipeline that fails to start leaves no claim on a new folder.
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
                    f"{self.folder} is not empty, and not a checkpoint; name another folder with --checkpoint"
                )
            self._told = json.dumps({**told, "shards": shards}, indent=2) + "\n"
            self.shards = shards
            return
        for name, ours in told.items():
            theirs = found.get(name)
            if theirs != ours:
                raise ConfigError(f"the checkpoint {self.folder} {_WHY[name].format(theirs=theirs, ours=ours)}")
        # The number of shards decides in which shard the state of a key is. Spark also keeps its number of partitions.
        self.shards = int(found.get("shards", shards))

    def keep(self) -> None:
        """Write the owner into the folder."""
        if self._told:
            (self.folder / FILE).write_text(self._told)
            self._told = ""


_WHY: Final = {
    "pipeline": "belongs to pipeline {theirs!r}, not to {ours!r}; name another folder with --checkpoint",
    "broker": "belongs to a broker with store {theirs}, and this one has {ours}: it lost its state, or is another "
    "broker; remove the folder to start again",
    "input": "belongs to a pipeline that read {theirs}, and this one reads {ours}; give the pipeline another name",
    "lanes": "has {theirs} lanes, and there are {ours} now; finish it with --once --drain, and give the pipeline "
    "another name",
    "memory": "has the state of other rules of tier 2 (windows, sequences, absences, monitors), which these rules "
    "cannot continue; finish it with --once --drain, and name another folder with --checkpoint: it continues at its "
    "last progress",
}


def memory_of(pipeline: Pipeline) -> str:
    """A hash of everything with state: rules with state, and monitors."""
    import hashlib

    told = [repr(rule) for rule in (*pipeline.tier2, *pipeline.monitor)]
    return hashlib.blake2b("\n".join(told).encode(), digest_size=8).hexdigest()
