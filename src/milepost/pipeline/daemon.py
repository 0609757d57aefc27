"""The process from which Spark forks its Python workers, named by `spark.python.daemon.module`.

It imports what every worker needs once, before they are forked; otherwise each worker would spend most of a second on
it. Where Spark puts the archive of its own Python first on the path, which Python cannot keep compiled, the archive is
removed from the path.
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

    # Workers collect garbage after each task. Freezing keeps them from scanning and copying everything imported here.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
