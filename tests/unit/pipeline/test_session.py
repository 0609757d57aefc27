"""What Spark needs, and what it must not take over."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import ConfigError
from milepost.pipeline.session import require_java


def java(folder: Path, version: str) -> None:
    """A Java that can say its version, and nothing else."""
    (folder / "bin").mkdir()
    (folder / "bin" / "java").write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    (folder / "bin" / "java").chmod(0o755)


@pytest.mark.parametrize(
    "version",
    [
        'openjdk version "17.0.13" 2024-10-15',
        'java version "25" 2025-09-16 LTS',
        'openjdk version "21-ea"',
        "who knows",
    ],
)
def test_a_java_that_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    require_java()


@pytest.mark.parametrize(
    ("version", "said"), [('openjdk version "11.0.2" 2019-01-15', "Java 11"), ('java version "1.8.0_402"', "Java 8")]
)
def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, said: str) -> None:
    java(tmp_path, version)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ConfigError, match=rf"needs Java 17 or newer, but there is {said} \({tmp_path}/bin/java\)"):
        require_java()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="but there is none: install it"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # Spark looks nowhere else then
    with pytest.raises(ConfigError, match=f"but there is none in JAVA_HOME, {tmp_path}: install it"):
        require_java()
    java(tmp_path, "")
    (tmp_path / "bin" / "java").chmod(0o644)
    with pytest.raises(ConfigError, match="but there is one that does not run"):
        require_java()
