"""What a pipeline is: its definition, as a file or as objects, and the check of it against the schema of its input.

::

    pipeline     the definition itself, its TOML, its parts
    step, rule   what tier 1 and tier 2 may do
    checking     everything compiled, or all that is wrong with it; no Spark is started
    checked      what comes of that
"""

from milepost.pipeline.definition.pipeline import (
    Control,
    Lane,
    Late,
    Pipeline,
    Spark,
    load_pipeline,
)

__all__ = ["Pipeline", "load_pipeline", "Control", "Lane", "Late", "Spark"]
