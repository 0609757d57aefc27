"""The ledger finds every kind of violation, each in a story where nothing else is wrong, and excuses what it should."""

import random
import time

import numpy as np
import pytest

from milepost.testing.ledger import Ledger


def story(count=20, publishers=("p", "q"), mode="once", **options):
    """A ledger in which everything went well, up to what a test adds."""
    ledger = Ledger()
    ledger.subscription("desk", "t", mode, **options)
    for number in range(count):
        for publisher in publishers:
            ledger.put(publisher, "t", number)
            ledger.stored(publisher, "t", number)
    return ledger


def deliver(ledger, count=20, publishers=("p", "q"), subscription="desk", leave=(), **options):
    for number in range(count):
        for publisher in publishers:
            if (publisher, number) not in leave:
                ledger.reach(subscription)
                ledger.got(subscription, publisher, number, **options)


def kinds(verdict):
    return [finding.kind for finding in verdict.findings]


def test_a_good_story_is_good():
    ledger = story()
    deliver(ledger)
    verdict = ledger.verdict()
    assert verdict
    assert bool(verdict) is True
    assert (verdict.attempted, verdict.acknowledged, verdict.refused, verdict.unknown) == (40, 40, 0, 0)
    assert verdict.subscriptions["desk"].delivered == 40
    assert str(verdict).endswith("verdict: good")


def test_nothing_at_all_is_good():
    assert Ledger().verdict()


def test_lost():
    ledger = story()
    deliver(ledger, leave={("q", 7), ("q", 8), ("p", 19)})
    verdict = ledger.verdict()
    assert not verdict
    assert kinds(verdict) == ["lost"]
    assert verdict.findings[0].count == 3
    assert verdict.findings[0].examples == ("p #19", "q #7", "q #8")
    assert "acknowledged and never delivered: p #19" in str(verdict)
    assert "BAD, 1 finding" in str(verdict)


def test_what_was_never_acknowledged_may_be_missing():
    ledger = story()
    ledger.put("p", "t", 20)
    deliver(ledger)
    verdict = ledger.verdict()
    assert verdict
    assert verdict.unknown == 1


def test_what_was_never_acknowledged_may_come():
    ledger = story()
    ledger.put("p", "t", 20)
    deliver(ledger)
    ledger.got("desk", "p", 20)
    assert ledger.verdict()


def test_what_one_subscription_got_must_reach_the_others():
    ledger = story()
    ledger.subscription("audit", "t")
    ledger.put("p", "t", 20)
    deliver(ledger)
    deliver(ledger, subscription="audit")
    ledger.got("audit", "p", 20)
    verdict = ledger.verdict()
    assert kinds(verdict) == ["uneven"]
    assert verdict.findings[0].where == "desk"


def test_invented():
    ledger = story()
    deliver(ledger)
    ledger.got("desk", "p", 99)
    assert kinds(ledger.verdict()) == ["invented"]


def test_invented_by_a_publisher_that_nobody_knows():
    ledger = story()
    deliver(ledger)
    ledger.got("desk", "stranger", 1)
    assert kinds(ledger.verdict()) == ["invented"]


def test_invented_messages_are_not_asked_of_other_subscriptions():
    ledger = story()
    ledger.subscription("audit", "t")
    deliver(ledger)
    deliver(ledger, subscription="audit")
    ledger.got("desk", "p", 99)
    assert kinds(ledger.verdict()) == ["invented"]


def test_messages_of_another_topic_are_invented_here():
    ledger = story()
    ledger.put("p", "other", 50)
    ledger.stored("p", "other", 50)
    deliver(ledger)
    ledger.got("desk", "p", 50)
    assert kinds(ledger.verdict()) == ["invented"]


def test_refused_and_delivered():
    ledger = story()
    ledger.put("p", "t", 20)
    ledger.refused("p", "t", 20)
    deliver(ledger)
    assert ledger.verdict().refused == 1
    assert ledger.verdict()
    ledger.got("desk", "p", 20)
    assert kinds(ledger.verdict()) == ["refused"]


def test_duplicate():
    ledger = story()
    deliver(ledger)
    ledger.got("desk", "p", 19)
    assert kinds(ledger.verdict()) == ["duplicate"]


def test_a_mark_excuses_no_duplicate_of_a_consumer_that_gets():
    ledger = story()
    deliver(ledger)
    ledger.got("desk", "p", 19, again=True)
    assert kinds(ledger.verdict()) == ["duplicate"]


def test_at_least_once_takes_duplicates_that_are_marked():
    ledger = story(mode="at least once")
    deliver(ledger)
    ledger.got("desk", ["p", "p"], [18, 19], again=True)
    verdict = ledger.verdict()
    assert verdict
    assert verdict.subscriptions["desk"].again == 2


def test_at_least_once_takes_no_duplicates_without_a_mark():
    ledger = story(mode="at least once")
    deliver(ledger)
    ledger.got("desk", ["p", "p"], [18, 19], again=[True, False])
    verdict = ledger.verdict()
    assert kinds(verdict) == ["unmarked"]
    assert verdict.findings[0].examples == ("p #19",)


def test_marks_can_be_waived():
    ledger = story(mode="at least once", marked=False)
    deliver(ledger)
    ledger.got("desk", "p", 19)
    assert ledger.verdict()


def test_a_broker_that_was_killed_has_forgotten_its_marks():
    ledger = story(mode="at least once", count=3)
    ledger.got("desk", "p", 0)
    killed = time.monotonic_ns()
    ledger.got("desk", "p", 1)  # it was on its way
    ledger.broke(killed)
    ledger.got("desk", "p", [0, 1, 2])
    ledger.got("desk", "q", [0, 1, 2])
    assert ledger.verdict(), ledger.verdict()
    ledger.got("desk", "p", 2)  # nobody died between
    ledger.got("desk", "p", 1)  # … nor between the second and this one, but since the first
    verdict = ledger.verdict()
    assert kinds(verdict) == ["unmarked"]
    assert verdict.findings[0].examples == ("p #2",)


def test_a_broker_that_was_killed_excuses_nothing_else():
    ledger = story()
    killed = time.monotonic_ns()
    deliver(ledger, leave={("q", 7)})
    ledger.broke(killed)
    ledger.got("desk", "p", 19)
    assert kinds(ledger.verdict()) == ["duplicate", "lost"]
    ledger = story(mode="at least once")
    killed = time.monotonic_ns()
    deliver(ledger)
    ledger.done("desk", "p", 19)
    ledger.broke(killed)
    ledger.got("desk", "p", 19)
    assert kinds(ledger.verdict()) == ["duplicate"]


@pytest.mark.parametrize("marked", [True, False])
def test_nothing_comes_again_after_its_acknowledgement_was_confirmed(marked):
    ledger = story(mode="at least once", marked=marked)
    deliver(ledger)
    ledger.got("desk", "p", 18, again=True)
    ledger.done("desk", ["p", "p"], [18, 19])
    assert ledger.verdict()
    ledger.got("desk", "p", 19, again=True)
    verdict = ledger.verdict()
    assert kinds(verdict) == ["duplicate"]
    assert verdict.findings[0].examples == ("p #19",)


def test_order():
    ledger = story()
    deliver(ledger, leave={("q", 7)})
    ledger.got("desk", "q", 7)
    verdict = ledger.verdict()
    assert kinds(verdict) == ["order"]
    assert verdict.findings[0].examples == ("q #7",)


def test_publishers_have_no_order_among_each_other():
    ledger = story()
    deliver(ledger, publishers=["q"])
    deliver(ledger, publishers=["p"])
    assert ledger.verdict()


def test_redelivery_out_of_order_is_none_of_the_first_delivery():
    ledger = story(mode="at least once")
    deliver(ledger)
    ledger.got("desk", ["p", "p"], [3, 2], again=True)
    assert ledger.verdict()


def test_members_that_acknowledge_by_themselves_share_one_order():
    ledger = story(count=4, publishers=["p"], mode="at least once")
    ledger.got("desk", "p", 0, member="a")
    ledger.got("desk", "p", 2, member="b")
    ledger.got("desk", "p", 1, member="a")
    ledger.got("desk", "p", 3, member="b")
    assert kinds(ledger.verdict()) == ["order"]


def test_members_that_get_are_held_to_their_own_order():
    ledger = story(count=4, publishers=["p"])
    ledger.got("desk", "p", 0, member="a")
    ledger.got("desk", "p", 2, member="b")
    ledger.got("desk", "p", 1, member="a")
    ledger.got("desk", "p", 3, member="b")
    assert ledger.verdict()
    ledger = story(count=4, publishers=["p"])
    ledger.got("desk", ["p", "p"], [1, 0], member="a")
    ledger.got("desk", ["p", "p"], [2, 3], member="b")
    assert kinds(ledger.verdict()) == ["order"]


def test_cursors_that_go_back():
    ledger = story()
    deliver(ledger)
    for offset in (0, 5, 5, 9):
        ledger.cursor("desk", 1, offset)
    ledger.cursor("desk", 2, 3)  # another log
    assert ledger.verdict()
    ledger.cursor("desk", 1, 8)
    verdict = ledger.verdict()
    assert kinds(verdict) == ["cursor"]
    assert verdict.findings[0].examples == ("9 to 8",)


def even(publisher, sequences):
    return sequences % 2 == 0


def test_a_filter_narrows_what_is_expected():
    ledger = story(wants=even)
    deliver(ledger, leave={(name, number) for name in "pq" for number in range(1, 20, 2)})
    assert ledger.verdict()


def test_lost_behind_a_filter():
    ledger = story(wants=even)
    deliver(ledger, leave={("p", 4)} | {(name, number) for name in "pq" for number in range(1, 20, 2)})
    assert kinds(ledger.verdict()) == ["lost"]


def test_unwanted():
    ledger = story(wants=even)
    deliver(ledger, leave={(name, number) for name in "pq" for number in range(3, 20, 2)})
    verdict = ledger.verdict()
    assert kinds(verdict) == ["unwanted"]
    assert verdict.findings[0].count == 2


def test_half_of_an_atomic_put():
    def told(seen_in_second):
        ledger = Ledger()
        ledger.subscription("one", "a")
        ledger.subscription("two", "b")
        ledger.together("p", ["a", "b"])
        for topic in ("a", "b"):
            ledger.put("p", topic, 1)
        ledger.got("one", "p", 1)
        if seen_in_second:
            ledger.got("two", "p", 1)
        return ledger.verdict()

    assert told(True)
    verdict = told(False)
    assert kinds(verdict) == ["uneven"]
    assert verdict.findings[0].where == "two"


def test_records_that_cannot_be():
    ledger = story()
    deliver(ledger)
    ledger.stored("p", "t", 77)
    assert "records" in kinds(ledger.verdict())
    ledger = story()
    deliver(ledger)
    ledger.put("p", "t", 3)
    assert kinds(ledger.verdict()) == ["records"]
    ledger = story()
    deliver(ledger)
    ledger.got("nobody", "p", 3)
    assert kinds(ledger.verdict()) == ["records"]
    ledger = story()
    deliver(ledger)
    ledger.refused("p", "t", 3)
    assert "records" in kinds(ledger.verdict())


@pytest.mark.parametrize("wrong", [-1, 1 << 47])
def test_sequences_out_of_range_are_refused_when_noted(wrong):
    with pytest.raises(ValueError, match="sequences"):
        Ledger().put("p", "t", wrong)
    with pytest.raises(ValueError, match="sequences"):
        Ledger().got("desk", "p", wrong)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="differ in number"):
        Ledger().got("desk", ["p"], [1, 2])
    with pytest.raises(ValueError, match="differ in number"):
        Ledger().done("desk", ["p"], [1, 2])
    with pytest.raises(ValueError, match="once"):
        Ledger().subscription("desk", "t", "twice")


# What a killed consumer had in its hands


def killed(ledger, at, in_hand, reach=1):
    """A consumer that dies when message `at` is next, with `in_hand` messages, and one that takes over."""
    for number in range(at):
        ledger.reach("desk", "c")
        ledger.got("desk", "p", number, member="c")
    ledger.reach("desk", "c", reach)
    ledger.began("c")
    for number in range(at + in_hand, 20):
        ledger.reach("desk", "c")
        ledger.got("desk", "p", number, member="c")


def test_a_killed_consumer_may_have_one_message_in_its_hands():
    ledger = story(publishers=["p"])
    killed(ledger, 7, 1)
    verdict = ledger.verdict()
    assert verdict
    tally = verdict.subscriptions["desk"]
    assert (tally.in_hand, tally.windows, tally.reach) == (1, 1, 1)
    assert "1 died in a consumer's hands" in str(verdict)


def test_a_killed_consumer_has_no_more_in_its_hands_than_it_reached_for():
    ledger = story(publishers=["p"])
    killed(ledger, 7, 2)
    verdict = ledger.verdict()
    assert kinds(verdict) == ["lost"]
    assert verdict.findings[0].count == 1


def test_a_killed_get_many_may_have_them_all():
    ledger = story(publishers=["p"])
    killed(ledger, 7, 5, reach=5)
    assert ledger.verdict()
    assert ledger.verdict().subscriptions["desk"].in_hand == 5


def test_a_window_excuses_only_what_belongs_there():
    ledger = story(publishers=["p"])
    for number in range(3):
        ledger.got("desk", "p", number, member="c")
    ledger.reach("desk", "c")
    ledger.began("c")  # 3 came next, so nothing was in hand
    for number in [*range(3, 9), *range(10, 20)]:
        ledger.got("desk", "p", number, member="c")
    assert kinds(ledger.verdict()) == ["lost"]


def test_a_death_that_was_not_reaching_excuses_nothing():
    ledger = story(publishers=["p"])
    for number in range(7):
        ledger.reach("desk", "c")
        ledger.got("desk", "p", number, member="c")
    ledger.began("c")
    for number in range(8, 20):
        ledger.got("desk", "p", number, member="c")
    assert kinds(ledger.verdict()) == ["lost"]


def test_a_get_that_was_given_up_may_have_messages_on_their_way():
    """Its acknowledgement was under way: the next gets return them, if the consumer lives."""
    ledger = story(publishers=["p"])
    for number in range(7):
        ledger.got("desk", "p", number, member="c")
    ledger.reach("desk", "c", 5)
    ledger.got("desk", member="c")
    ledger.reach("desk", "c")
    ledger.got("desk", "p", 7, member="c")  # one of the five
    ledger.reach("desk", "c")
    ledger.began("c")
    for number in range(12, 20):
        ledger.got("desk", "p", number, member="c")
    verdict = ledger.verdict()
    assert verdict, verdict
    assert verdict.subscriptions["desk"].in_hand == 4


def test_a_get_that_was_given_up_is_over_when_as_many_have_come():
    ledger = story(publishers=["p"])
    ledger.reach("desk", "c", 5)
    ledger.got("desk", member="c")
    for number in range(7):
        ledger.reach("desk", "c")
        ledger.got("desk", "p", number, member="c")
    ledger.reach("desk", "c")
    ledger.began("c")
    for number in range(9, 20):
        ledger.got("desk", "p", number, member="c")
    verdict = ledger.verdict()
    assert kinds(verdict) == ["lost"]
    assert verdict.findings[0].count == 1
    assert verdict.subscriptions["desk"].in_hand == 1


def test_a_consumer_that_never_came_back_is_a_window_too():
    ledger = story(publishers=["p"])
    deliver(ledger, publishers=["p"], count=19)
    ledger.reach("desk", "c")
    verdict = ledger.verdict()
    assert verdict
    assert verdict.subscriptions["desk"].in_hand == 1


def test_a_consumer_that_ended_in_good_order_has_nothing_in_its_hands():
    ledger = story(publishers=["p"])
    deliver(ledger, publishers=["p"], count=19)
    ledger.reach("desk", "c", 5)
    ledger.got("desk", member="c")
    assert ledger.verdict()
    ledger.ended("c")
    assert kinds(ledger.verdict()) == ["lost"]
    assert ledger.verdict().subscriptions["desk"].windows == 0


def test_windows_are_given_out_as_well_as_possible():
    """Two windows, two lost messages; the second window fits both, the first only one."""
    ledger = story(publishers=["p", "q"], count=3)
    ledger.got("desk", ["p", "q"], [0, 0], member="c")
    ledger.reach("desk", "c")
    ledger.began("c")
    ledger.got("desk", "p", 2, member="c")  # p 1: only the first window fits
    ledger.reach("desk", "c")
    ledger.began("c")
    ledger.got("desk", "q", 2, member="c")  # q 1: both do
    verdict = ledger.verdict()
    assert verdict, verdict
    assert verdict.subscriptions["desk"].in_hand == 2


def test_the_deaths_of_others_excuse_nothing():
    ledger = story(publishers=["p"])
    ledger.began("a publisher")
    deliver(ledger, publishers=["p"], leave={("p", 5)})
    ledger.began("the broker")
    assert kinds(ledger.verdict()) == ["lost"]


def test_ranges_are_messages():
    ledger = Ledger()
    ledger.subscription("desk", "t")
    ledger.put("p", "t", 0, 100)
    ledger.stored("p", "t", 0, 50)
    ledger.stored("p", "t", 60, 10)
    ledger.refused("p", "t", 90, 10)
    ledger.got("desk", "p", [*range(50), *range(60, 69)])
    verdict = ledger.verdict()
    assert (verdict.attempted, verdict.acknowledged, verdict.refused, verdict.unknown) == (100, 60, 10, 30)
    assert verdict.findings[0].examples == ("p #69",)


def naive(attempted, stored, refused, got, where):
    """The same rules for one consumer that gets, in the plainest words."""
    found = set()
    seen = []
    for message in got:
        found |= {"duplicate"} if message in seen else set()
        found |= {"invented"} if message not in attempted else set()
        found |= {"refused"} if message in refused else set()
        found |= {"unwanted"} if not where(message) else set()
        if message not in seen and any(p == message[0] and n > message[1] for p, n in seen):
            found.add("order")
        seen.append(message)
    if any(where(message) and message not in seen for message in stored):
        found.add("lost")
    return found


def test_the_ledger_agrees_with_the_plain_rules():
    """Random stories with random mutations, from one seed."""
    dice = random.Random(4)
    met = set()
    for _ in range(400):
        attempted = [(p, n) for n in range(6) for p in "pq"]
        fates = [dice.choices(["stored", "refused", "unknown"], [8, 1, 1])[0] for _ in attempted]
        stored = [m for m, fate in zip(attempted, fates, strict=True) if fate == "stored"]
        refused = [m for m, fate in zip(attempted, fates, strict=True) if fate == "refused"]
        filtered = dice.random() < 0.5
        got = [m for m in attempted if m in stored and (not filtered or m[1] % 2 == 0)]
        for _ in range(dice.randrange(3)):
            change = dice.randrange(4)
            place = dice.randrange(len(got)) if got else 0
            if change == 0 and got:
                del got[place]
            elif change == 1 and got:
                got.insert(dice.randrange(len(got) + 1), got[place])
            elif change == 2:
                got.insert(place, (dice.choice("pqr"), dice.randrange(9)))
            elif got:
                other = dice.randrange(len(got))
                got[place], got[other] = got[other], got[place]
        ledger = Ledger()
        ledger.subscription("desk", "t", wants=even if filtered else None)
        for message, fate in zip(attempted, fates, strict=True):
            ledger.put(message[0], "t", message[1])
            if fate != "unknown":
                getattr(ledger, fate)(message[0], "t", message[1])
        for message in got:
            ledger.got("desk", *message)
        expected = naive(attempted, stored, refused, got, lambda m, on=filtered: not on or m[1] % 2 == 0)
        assert set(kinds(ledger.verdict())) == expected
        met |= expected
    assert met == {"duplicate", "invented", "refused", "unwanted", "order", "lost"}


@pytest.mark.slow
def test_a_million_messages():
    """Counted, not timed: one finding among a million."""
    ledger = Ledger()
    ledger.subscription("desk", "t")
    for first in range(0, 1_000_000, 1000):
        ledger.put("p", "t", first, 1000)
        ledger.stored("p", "t", first, 1000)
        ledger.got("desk", "p", np.arange(first, first + 1000 - (first == 500_000)).tolist())
    verdict = ledger.verdict()
    assert verdict.attempted == 1_000_000
    assert [finding.examples for finding in verdict.findings] == [("p #500999",)]
