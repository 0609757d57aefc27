"""A durable subscription as a state machine, against a model that keeps every row in a dictionary."""

import zlib
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

import milepost
from milepost.batch import Batch, IdRun, Ids
from milepost.broker.core.log import reach
from milepost.broker.core.log.portion import Portion
from milepost.broker.core.log.reach import Reach, State, packed, unpacked
from milepost.broker.core.log.subscription import Acknowledged, LogSubscription
from milepost.errors import AckMismatch

SCHEMA = milepost.parse_schema("n: [offset: long]")
LOG = 1
ABSENT = object()  # has what was handed on before a restart


def batch_of(offsets, publishers):
    ends = [
        place + 1
        for place in range(len(offsets))
        if place + 1 == len(offsets) or publishers[place] != publishers[place + 1]
    ]
    runs = tuple(IdRun(end, publishers[end - 1], 7) for end in ends)
    ids = Ids(runs, np.array(offsets, np.uint64) + np.uint64(1))
    return Batch.encode(SCHEMA, [{"offset": int(offset)} for offset in offsets], ids)


def ranges(offsets):
    """Runs of offsets, both ends included."""
    found = []
    for offset in offsets:
        if found and found[-1][1] + 1 == offset:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found


def connection(ready=True):
    return SimpleNamespace(ready=ready)


class StreamMachine(RuleBasedStateMachine):
    """Rows enter, are handed out, handed on, acknowledged, sent back; members come and go; the broker restarts."""

    members = Bundle("members")

    @initialize(rows=st.sampled_from([2, 5, reach.LOT_ROWS]))
    def begin(self, rows):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(reach, "LOT_ROWS", rows)  # so that there are several
        self.topic = SimpleNamespace(ends={LOG: 0})
        self.publisher = []  # of each offset; 0: it does not match
        self.done = set()
        self.stored = (0, b"")
        self.held = {}  # offset -> member; ABSENT: it is reserved
        self.marked = set()  # handed on, and not taken over since
        self.last = None  # the one that was handed on and acknowledged last
        self.stored_marks = {}, None  # offset -> whether somebody has it; and the last
        self.tries = {}
        self.current = []
        self.restart()

    def restart(self):
        self.subscription = LogSubscription(self.topic, "name", None, {LOG: Reach(*self.stored)})
        self.subscription.stored = 1
        marks, self.last = self.stored_marks
        self.marked = set(marks)
        self.held = {offset: ABSENT for offset, held in marks.items() if held}
        self.flying = []  # acknowledgements that are being stored
        self.flight = None
        self.current = []
        self.moves = 0

    @rule(target=members, room=st.integers(1, 6), hands=st.booleans())
    def join(self, room, hands):
        member = self.subscription.join(connection(), len(self.current), b"", room, 0, hands=hands)
        self.current.append(member)
        if hands:
            gone = self.done | self.acknowledged()
            for offset in self.marked - gone:
                if self.held.get(offset, ABSENT) is ABSENT:
                    self.held[offset] = member
            assert self.subscription.handed_on(member).get(LOG, []) == [
                o for o in self.mine(member) if o in self.marked
            ]
        return member

    @rule()
    def release(self):
        """Those who hand on have been away for too long."""
        for offset in self.mine(ABSENT):
            del self.held[offset]
            self.tries[offset] = self.tries.get(offset, 0) + 1
        self.subscription.release()

    @rule(member=members, data=st.data())
    def hand_on(self, member, data):
        mine = self.mine(member) if member in self.current else []
        some = [offset for offset in mine if offset not in self.marked]
        if not some:
            return
        offset = data.draw(st.sampled_from(some))
        self.moves += 1
        chosen = self.subscription.choose(member, {LOG: [[offset, offset]]}, "handed on")
        self.move(Acknowledged(member, self.moves, [], self.moves, chosen), [], [offset])

    def move(self, taken, some, marked=()):
        """Store an acknowledgement, or a handing on."""
        self.subscription.acknowledge(taken)
        before = self.last
        self.marked.update(marked)
        self.last = max((offset for offset in some if offset in self.marked), default=self.last)
        for offset in some:
            del self.held[offset]
        here = self.subscription.reach(LOG)
        cursor = here.cursor()
        gone = self.done | self.acknowledged() | set(some)
        marks = {offset: offset in self.held for offset in self.marked - gone}
        assert here.acknowledged == self.last
        self.flying.append((taken, some, (cursor, here.state(cursor)), marked, (marks, self.last), before))

    @rule(publishers=st.lists(st.integers(0, 3), min_size=1, max_size=6))
    def enter(self, publishers):
        self.publisher += publishers
        self.topic.ends[LOG] = len(self.publisher)

    @rule(count=st.integers(1, 9))
    def begin_reading(self, count):
        subscription = self.subscription
        if not subscription.members or subscription.pending or self.flight is not None:
            return
        if subscription.again:
            found = subscription.returned()
            if found is None:
                subscription.again = False
                return
            log, chosen = found
            some = chosen.lot.offsets[chosen.places][:count]
            wanted = some.tolist()
            rows = batch_of(wanted, [self.publisher[each] for each in wanted])
            end = Portion(log, wanted[-1] + 1, wanted[-1] + 1, None, some[:0])
            self.flight = chosen, subscription.returns, [Portion(log, wanted[0], wanted[-1] + 1, rows, some), end]
        elif subscription.behind() is not None:
            first = subscription.reach(LOG).next
            end = min(first + count, len(self.publisher))
            wanted = [offset for offset in range(first, end) if self.publisher[offset]]
            rows = batch_of(wanted, [self.publisher[offset] for offset in wanted]) if wanted else None
            self.flight = None, 0, [Portion(LOG, first, end, rows, np.array(wanted, np.uint64))]

    @rule()
    def finish_reading(self):
        flight, self.flight = self.flight, None
        if flight is None:
            return
        chosen, returns, found = flight
        if chosen is None:
            assert self.subscription.take(found[0])
        elif self.subscription.returns == returns:
            assert not len(self.subscription.take_again(chosen, found))

    def read(self, count):
        self.begin_reading(count)
        self.finish_reading()

    @rule()
    def hand_out(self):
        for member, log, batch, offsets, tries, _ in self.subscription.hand_out():
            assert log == LOG
            assert batch.column("offset").tolist() == offsets.tolist()
            for place, offset in enumerate(offsets.tolist()):
                assert offset not in self.done, "what is done does not come again"
                assert offset not in self.held, "nobody else has it"
                assert offset not in self.acknowledged(), "nor is it about to be done"
                publisher = self.publisher[offset]
                others = [o for o, m in self.held.items() if self.publisher[o] == publisher and m is not member]
                assert not others, "rows of one publisher are with one member"
                gone = self.done | self.acknowledged()
                earlier = [o for o in range(offset) if self.publisher[o] == publisher and o not in gone]
                assert all(o in self.held for o in earlier), "nor do they overtake one another"
                self.held[offset] = member
                self.marked.discard(offset)
                assert (0 if tries is None else int(tries[place])) == self.tries.get(offset, 0)
            assert member.rows <= member.prefetch

    def acknowledged(self):
        return {offset for _, some, *_ in self.flying for offset in some}

    def mine(self, member):
        return sorted(offset for offset, owner in self.held.items() if owner is member)

    @rule(member=members, data=st.data())
    def acknowledge(self, member, data):
        mine = self.mine(member) if member in self.current else []
        if not mine:
            return
        first = data.draw(st.sampled_from(mine))
        last = data.draw(st.sampled_from([each for each in mine if each >= first]))
        subscription = self.subscription
        self.moves += 1
        some = [offset for offset in mine if first <= offset <= last]
        self.move(
            Acknowledged(member, self.moves, subscription.choose(member, {LOG: ranges(some)}, "done"), self.moves), some
        )

    @rule(stored=st.booleans())
    def outcome(self, stored):
        """The first move that is under way is stored; or it failed, and all behind it fail too."""
        if not self.flying:
            return
        if stored:
            taken, some, self.stored, _, self.stored_marks, _ = self.flying.pop(0)
            self.done.update(some)
            self.subscription.reach(LOG).settle(taken.move)
            return
        flying, self.flying = self.flying, []
        self.last = flying[0][-1]
        for taken, some, _, marked, _, _ in flying:
            self.subscription.undo(taken)
            self.marked.difference_update(marked)
            for offset in some:
                if self.subscription.reach(LOG).chosen(offset, offset, taken.member.key):
                    self.held[offset] = taken.member
                else:
                    self.tries[offset] = self.tries.get(offset, 0) + 1

    @rule(member=members, data=st.data())
    def send_back(self, member, data):
        mine = self.mine(member) if member in self.current else []
        if not mine:
            return
        offset = data.draw(st.sampled_from(mine))
        later = [each for each in self.held if each > offset and self.publisher[each] == self.publisher[offset]]
        if later:
            return  # those would be overtaken, which is what sending back means
        self.subscription.send_back(member, self.subscription.choose(member, {LOG: [[offset, offset]]}, "back"))
        del self.held[offset]
        self.tries[offset] = self.tries.get(offset, 0) + 1

    @rule(member=consumes(members))
    def leave(self, member):
        if member in self.current:
            for offset in self.mine(member):
                del self.held[offset]
                self.tries[offset] = self.tries.get(offset, 0) + 1
            self.subscription.leave(member)
            self.current.remove(member)

    @precondition(lambda self: self.moves > 0)
    @rule()
    def crash(self):
        late, tries, handed, left, last = unpacked(self.stored[1])
        marks, self.last = self.stored_marks
        assert (handed.keys(), left.keys()) == tuple(
            {o for o, held in marks.items() if held is h} for h in (True, False)
        )
        assert last == self.last
        cursor = self.stored[0]
        matching = {offset for offset in range(len(self.publisher)) if self.publisher[offset]}
        known = {offset for offset in matching if offset < cursor} | set(late.tolist())
        assert known == self.done, "what is stored says exactly what is done"
        self.tries = {offset: count for offset, count in self.tries.items() if tries.get(offset) == count}
        self.tries |= tries
        self.restart()

    @invariant()
    def the_cursor_is_right(self):
        if not hasattr(self, "subscription"):
            return
        here = self.subscription.reach(LOG)
        cursor = here.cursor()
        matching = [offset for offset in range(here.next) if self.publisher[offset]]
        undone = [offset for offset in matching if offset not in self.done | self.acknowledged()]
        assert cursor == min(undone, default=here.next) or (not undone and cursor <= here.next)

    def teardown(self):
        """In the end somebody gets everything."""
        if not hasattr(self, "subscription"):
            return
        try:
            self.finish()
        finally:
            self.patch.undo()

    def finish(self):
        while self.flying:
            self.outcome(True)
        member = self.join(room=6, hands=False)
        self.release()
        for _ in range(3 * len(self.publisher) + 10):
            self.read(5)
            self.hand_out()
            for each in list(self.current):
                mine = self.mine(each)
                if mine:
                    self.moves += 1
                    taken = Acknowledged(
                        each, self.moves, self.subscription.choose(each, {LOG: ranges(mine)}, "done"), self.moves
                    )
                    self.subscription.acknowledge(taken)
                    for offset in mine:
                        self.done.add(offset)
                        del self.held[offset]
        assert self.done == {offset for offset, publisher in enumerate(self.publisher) if publisher}
        assert member.rows == 0


TestStream = StreamMachine.TestCase
TestStream.settings = hypothesis_settings(stateful_step_count=40)


def test_what_was_not_handed_out_cannot_be_acknowledged():
    subscription = LogSubscription(SimpleNamespace(ends={LOG: 3}), "name", None, {LOG: Reach(0)})
    subscription.stored = 1
    member = subscription.join(connection(), 1, b"", 10, 0)
    other = subscription.join(connection(), 2, b"", 10, 0)
    subscription.take(Portion(LOG, 0, 3, batch_of([0, 1, 2], [5, 5, 5]), np.arange(3, dtype=np.uint64)))
    handed = list(subscription.hand_out())
    assert len(handed) == 1
    with pytest.raises(AckMismatch, match="not all of them are in this client's hands"):
        subscription.choose(other if handed[0].member is member else member, {LOG: [[0, 2]]}, "acknowledged were")
    with pytest.raises(AckMismatch):
        subscription.choose(handed[0].member, {LOG: [[3, 9]]}, "acknowledged were")
    with pytest.raises(AckMismatch):
        subscription.choose(handed[0].member, {2: [[0, 2]]}, "acknowledged were")


@pytest.mark.parametrize("late", [[], [3], [3, 4, 5, 2**40], list(range(0, 5000, 3))])
def test_a_state_is_read_back(late):
    for tries, handed, left, last in (({}, {}, {}, None), ({7: 2}, {}, {}, None), ({}, {9: 5}, {2**40: 6}, 0)):
        found = unpacked(packed(State(np.array(late, np.uint64), tries, handed, left, last)))
        assert found.late.tolist() == late
        assert found[1:] == (tries, handed, left, last)


def test_what_is_done_above_a_row_that_was_reopened_is_not_forgotten(monkeypatch):
    monkeypatch.setattr(reach, "LOT_ROWS", 2)
    here = Reach(0)
    first = here.add(np.array([0, 1], np.uint64), np.ones(2, np.uint32), None)
    second = here.add(np.array([2, 3], np.uint64), np.ones(2, np.uint32), None)
    here.next = 4
    first.lot.finish(first.places, 1)
    second.lot.finish(second.places[:1], 2)
    assert here.cursor() == 3
    first.lot.reopen(first.places[:1])  # its commit failed
    assert here.cursor() == 0
    assert here.done_early == 2
    assert unpacked(here.state(0)).late.tolist() == [1, 2]


def test_what_was_stored_before_handing_on_was_known_is_read_on():
    steps = np.array([3, 2], "<u8").tobytes()
    state = msgspec.msgpack.encode({"late": zlib.compress(steps, 1), "tries": {7: 2}})
    found = unpacked(state)
    assert found.late.tolist() == [3, 5]
    assert found[1:] == ({7: 2}, {}, {}, None)
