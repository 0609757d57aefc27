"""The process that Spark forks its Python workers from: `spark.python.daemon.module` names it.

What every worker needs is imported once, before they are forked: each would take the better part of a second for it.
Where Spark puts an archive of its own Python before everything else, which Python cannot keep compiled, it is left out.
"""

from __future__ import annotations

import gc
import sys

sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]


def main() -> None:
    """Import what workers need, and serve Spark."""
    import pyarrow  # noqa: F401
    import pyspark.sql.datasource
    import pyspark.sql.pandas.serializers
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import milepost.pipeline.internal_source  # noqa: F401

    # Workers collect garbage after each task: they need not go through all that was imported here, nor copy it.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
