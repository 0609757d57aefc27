"""The demo ends by itself, without a terminal, and what it claims holds."""

import io

import pytest

from milepost.cli import demo as theatre
from milepost.cli.demo import pipeline
from milepost.cli.terminal import Console


@pytest.mark.slow
@pytest.mark.xdist_group("demo")
def test_the_demo_plays_every_scene_and_checks_its_claims(demo):
    assert demo.returncode == 0, demo.stderr
    titles = (
        "A broker is killed", "A broker sends", "A queue gives", "Events in two tiers", "One query language",
        "A field is read", "A schema says", "A batch is",
    )  # fmt: skip
    places = [demo.stdout.find(f"\n{title}") for title in titles]
    assert -1 not in places
    assert places == sorted(places)  # what it does comes before how it is made
    assert demo.stdout.rstrip().splitlines()[-1].split()[1:3] == ["claims,", "each"]
    assert "\x1b" not in demo.stdout  # no colours into a pipe


def test_what_takes_long_is_told_with_its_seconds_on_a_terminal():
    for terminal in (True, False):
        said = io.StringIO()
        narrator = theatre.Narrator()
        narrator.console = Console(file=said, force_terminal=terminal, width=80)
        with narrator.waiting("Spark starts") as told:
            told("Spark works")
        assert "Spark" in said.getvalue()
        assert ("0:00:00" in said.getvalue()) == terminal


def test_without_java_the_scene_on_spark_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    pipeline.play(theatre.Narrator())
    said = " ".join(capsys.readouterr().out.split())
    assert "Without Spark there is nothing to see here: Spark needs Java 17 or newer" in said


def test_a_claim_that_does_not_hold_ends_the_demo(monkeypatch):
    def lie(narrator):
        narrator.claim("the moon is a cheese", False)

    monkeypatch.setattr(theatre, "SCENES", (lie,))
    with pytest.raises(theatre.ClaimFailed, match="the moon is a cheese"):
        theatre.run()
