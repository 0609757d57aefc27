"""The Spark back end: expressions as columns of built-in functions, which Spark plans, and no Python at run time."""

from milepost.query.spark.types import CASE, carries, case_field, field_type, spark_type, struct_type

__all__ = ["struct_type", "field_type", "spark_type", "CASE", "case_field", "carries"]
