"""The message formats that `benchmarks.format` compares. Each module says how its format is driven, and why so."""

from benchmarks.formats.format import Format

__all__ = ["Format"]
