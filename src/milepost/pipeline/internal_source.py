"""The data source that pipelines use internally: lanes, combiner and sink. Users have `format("milepost")`."""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from milepost.pipeline.combined import CombinedReader, CombinedSetting, combined_type
from milepost.pipeline.lane import LaneReader, LaneSetting, lane_type
from milepost.pipeline.progress import ProgressSetting, ProgressSink
from milepost.pipeline.source import connection, topics
from milepost.pipeline.source import options as known
from milepost.pipeline.source.options import Option
from milepost.pipeline.source.sink import StreamSink
from milepost.pipeline.source.types import spark_schema
from milepost.schema import Schema

FORMAT: Final = "milepost-pipeline"
SINK: Final = (*known.WRITING, Option("progress", ProgressSetting.of, required=True))


class PipelineDataSource(DataSource):
    """Options: `lane` or `combined` to read, `progress` with the options of a sink to write; each a setting as JSON."""

    @classmethod
    def name(cls) -> str:
        """The name for `format("milepost-pipeline")`."""
        return FORMAT

    def _found(self) -> tuple[LaneSetting | CombinedSetting, Schema]:
        """The setting, and the schema of the topics to read."""
        lane = "lane" in self.options
        setting = LaneSetting.of(self.options["lane"]) if lane else CombinedSetting.of(self.options["combined"])
        first = setting.inputs[0] if isinstance(setting, LaneSetting) else setting.lanes[0]
        return setting, topics.found(connection.client(setting.broker, setting.timeout), first).schema

    def schema(self) -> StructType:
        """The columns of events, and the added ones."""
        setting, schema = self._found()
        columns = lane_type if isinstance(setting, LaneSetting) else combined_type
        return columns(spark_schema(schema), setting.monitors)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A lane, or the combiner."""
        setting, events = self._found()
        if isinstance(setting, LaneSetting):
            return LaneReader(setting, events, schema)
        return CombinedReader(setting, events, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """The sink for all routes, which also commits progress."""
        options = known.checked(self.options, SINK, "the sink of a pipeline")
        return ProgressSink(options.progress, options, schema)
