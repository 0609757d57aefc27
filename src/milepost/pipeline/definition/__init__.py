"""The definition of a pipeline, as a file or as objects, and its check against the schema of its input.

::

    pipeline               the definition itself, its TOML, its parts
    step, rule             the steps of tier 1 and the rules of tier 2
    checker, rule_checker  compile everything, or list all problems; no Spark is started
    checked                the result of a check
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
