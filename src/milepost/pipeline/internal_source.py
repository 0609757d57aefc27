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

    def _lane(self) -> LaneSetting | None:
        return LaneSetting.of(self.options["lane"]) if "lane" in self.options else None

    def _schema(self, broker: str, timeout: float, topic: str) -> Schema:
        return topics.found(connection.client(broker, timeout), topic).schema

    def schema(self) -> StructType:
        """The columns of events, and the added ones."""
        lane = self._lane()
        if lane is not None:
            events = spark_schema(self._schema(lane.broker, lane.timeout, lane.inputs[0]))
            return lane_type(events, lane.monitors)
        setting = CombinedSetting.of(self.options["combined"])
        return combined_type(
            spark_schema(self._schema(setting.broker, setting.timeout, setting.lanes[0])), setting.monitors
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A lane, or the combiner."""
        lane = self._lane()
        if lane is not None:
            return LaneReader(lane, self._schema(lane.broker, lane.timeout, lane.inputs[0]), schema)
        setting = CombinedSetting.of(self.options["combined"])
        return CombinedReader(setting, self._schema(setting.broker, setting.timeout, setting.lanes[0]), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """The sink for all routes, which also commits progress."""
        options = known.checked(self.options, SINK, "the sink of a pipeline")
        return ProgressSink(options.progress, options, schema)
