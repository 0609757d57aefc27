"""Milepost as a data source of Spark: topics as streams and tables, and exactly-once sinks."""
