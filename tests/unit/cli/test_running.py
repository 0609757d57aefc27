"""How a pipeline is asked to end."""

from __future__ import annotations

import signal

import pytest

from milepost.cli import running


def test_what_comes_twice_at_once_is_one_and_a_second_ctrl_c_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    with running._leaving() as leaving:
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        assert leaving == [signal.SIGINT, signal.SIGINT, signal.SIGTERM]
        monkeypatch.setattr(running, "TWICE_S", -1.0)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
