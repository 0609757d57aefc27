"""The demo ends by itself, without a terminal, and what it claims holds."""

import pytest

from milepost.cli import demo as theatre


@pytest.mark.slow
@pytest.mark.xdist_group("demo")
def test_the_demo_plays_every_scene_and_checks_its_claims(demo):
    assert demo.returncode == 0, demo.stderr
    for title in (
        "A schema says", "A batch is", "One query language", "A field is read", "A broker sends", "What a broker has",
        "A queue gives",
    ):  # fmt: skip
        assert title in demo.stdout
    assert demo.stdout.rstrip().splitlines()[-1].split()[1:3] == ["claims,", "each"]
    assert "\x1b" not in demo.stdout  # no colours into a pipe


def test_a_claim_that_does_not_hold_ends_the_demo(monkeypatch):
    def lie(stage):
        stage.claim("the moon is a cheese", False)

    monkeypatch.setattr(theatre, "SCENES", (lie,))
    with pytest.raises(theatre.ClaimFailed, match="the moon is a cheese"):
        theatre.run()
