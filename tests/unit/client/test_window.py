"""What a client holds, over all its connections."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from milepost.client.window import DeliveryWindow

SIZE = 1_000


class Line:
    """A connection, and what a broker knows about it."""

    def __init__(self, window):
        self.alive = False
        self.credit = SIZE - window.begin(self)

    def say(self, message):
        self.credit += message.bytes
        assert self.credit <= SIZE, "more credit than was delivered is an error"


def test_credit_goes_back_in_large_pieces():
    window, said = DeliveryWindow(SIZE), []
    window.begin(SimpleNamespace(alive=True, say=said.append))
    window.held = 900
    window.consumed(400)
    assert said == []
    window.consumed(100)
    assert [each.bytes for each in said] == [500]
    assert window.held == 400


@given(st.lists(st.sampled_from(["send", "take", "lose", "hello", "welcome"]), max_size=200), st.integers(1, 700))
def test_no_more_is_held_than_the_window_and_a_frame_and_nothing_gets_stuck(steps, size):
    window = DeliveryWindow(SIZE)
    line, waiting = Line(window), []
    line.alive = True
    for step in [*steps, "hello", "welcome"]:
        if step == "send" and line.alive and line.credit > 0:
            line.credit -= size
            window.held += size
            waiting.append(size)
        elif step == "take" and waiting:
            window.consumed(waiting.pop())
        elif step == "lose":
            line.alive = False
        elif step == "hello":
            line.alive = False
            line = Line(window)
        elif step == "welcome" and not line.alive:
            line.alive = True
            window.give_back()
        assert window.held == sum(waiting) < SIZE + size
    while waiting:
        window.consumed(waiting.pop())
    assert line.credit > 0
