"""The pipeline on Spark. Names are loaded when they are asked for: a client needs no Spark."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from milepost.extras import extra

_WHERE: Final = {
    "MilepostDataSource": "milepost.pipeline.source.datasource",
    "register": "milepost.pipeline.source.datasource",
    "Pipeline": "milepost.pipeline.definition.pipeline",
    "load_pipeline": "milepost.pipeline.definition.pipeline",
    "Runner": "milepost.pipeline.runner",
}

__all__ = ["MilepostDataSource", "Pipeline", "Runner", "load_pipeline", "register"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra("pipelines need", "spark"):
        found = getattr(import_module(_WHERE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
