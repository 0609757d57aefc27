"""The demo ends by itself, without a terminal, and what it claims holds."""

import pytest

from milepost.cli import demo


def test_the_demo_plays_every_scene_and_checks_its_claims(milepost):
    played = milepost("demo")
    assert played.returncode == 0, played.stderr
    for title in (
        "A schema says", "A batch is", "One query language", "A field is read", "A broker sends", "What a broker has",
        "A queue gives",
    ):  # fmt: skip
        assert title in played.stdout
    assert played.stdout.rstrip().splitlines()[-1].split()[1:3] == ["claims,", "each"]
    assert "\x1b" not in played.stdout  # no colours into a pipe


def test_a_claim_that_does_not_hold_ends_the_demo(monkeypatch):
    def lie(stage):
        stage.claim("the moon is a cheese", False)

    monkeypatch.setattr(demo, "SCENES", (lie,))
    with pytest.raises(demo.ClaimFailed, match="the moon is a cheese"):
        demo.run()
