"""The message formats that `benchmarks.format` compares, each used the fastest way its documentation offers."""

from benchmarks.formats.format import Format

__all__ = ["Format"]
