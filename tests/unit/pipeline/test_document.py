"""Every TOML file in docs/pipeline.md is a pipeline that can be, and every key of the format is in it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from milepost import parse_schema
from milepost.pipeline.definition import Control, Lane, Late, Pipeline, Spark
from milepost.pipeline.definition.checker import check
from milepost.pipeline.definition.rule import AbsenceRule, MonitorRule, SequenceRule, ThresholdRule, WindowRule
from milepost.pipeline.definition.step import VERBS
from milepost.pipeline.definition.table import key_of

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "pipeline.md").read_text()
FILES = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SCHEMA = parse_schema(re.findall(r"^```text\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[0])


@pytest.mark.parametrize("text", FILES, ids=range(len(FILES)))
def test_a_file_of_the_document_can_be(text: str, tmp_path) -> None:
    (tmp_path / "hosts.csv").write_text("ip,name,type\n10.0.0.1,a,b\n")
    (tmp_path / "sites.csv").write_text("network,site\n10.0.0.0/8,a\n")
    check(Pipeline.from_toml(text).at(tmp_path), SCHEMA)


@pytest.mark.parametrize(
    "table",
    [
        Pipeline,
        Spark,
        Lane,
        Control,
        Late,
        MonitorRule,
        ThresholdRule,
        WindowRule,
        SequenceRule,
        AbsenceRule,
        *VERBS.values(),
    ],
)
def test_every_key_is_in_the_document(table: type) -> None:
    said = set(re.findall(r"[A-Za-z_0-9]+", " ".join(re.findall(r"`([^`\n]+)`", TEXT))))
    assert {key_of(item) for item in fields(table)} - {""} <= said | {"name", "tier1", "tier2", "monitor", "lane"}


def test_the_document_has_files() -> None:
    assert len(FILES) >= 7
