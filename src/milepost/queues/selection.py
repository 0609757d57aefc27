"""Which messages a dequeue takes next: the statement that finds the messages of a dequeue, for each level, in order.

Four forms. At level none it is the order of priorities, by an index, or a set that is selected first and sorted then.
At the other levels messages belong to groups, which one reader at a time may have. Without priorities, selection or
ordering function the order of arrival is all there is, and an index has it. Otherwise all messages that the reader may
see are ranked, and of a group that is read in order, no message comes before those in front of it::

    rank     1  2  3  4  5  6        by priority or ordering function, whatever the writer
    writer   b  a  b  a  a  b
    arrival  2. 2. 1. 1. 3. 3.       within its writer
    lead     3  4  3  4  5  6        the highest rank up to it, within its writer
    taken    2. 4. 1. 3. 5. 6.       by lead, then arrival: as if a reader always took the best of the oldest
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from milepost import query
from milepost.errors import InvalidValue, WrongType
from milepost.query import sql, typed
from milepost.query.sql.value import Dialect
from milepost.queues import statements
from milepost.queues.catalogue import Queue, QueueCatalogue, TypeEntry
from milepost.queues.statements import CACHED
from milepost.queues.states import NEVER_US
from milepost.storage.database import Session
from milepost.storage.statement import Statement

LOOKS: Final = 10  # at what can be taken, while other brokers take the same: then less, or nothing, was there
FEW_GROUPS: Final = 200  # writers whose oldest messages are looked at one by one, in a millisecond or two
WALK: Final = 8  # times as long as to read a row in passing takes it to look one up by its message's number
FEW_WAITING: Final = 1_000  # messages that are looked up one by one in a millisecond, however many others have the type
HEADER: Final = "q.mid, q.s, q.t, q.type, q.priority, q.aborts, q.lsf"
_NOW: Final = "q.due_us <= :now AND q.ends_us > :now"


class Head(NamedTuple):
    """The header of a message, as the table has it."""

    mid: int
    s: int
    t: int
    type: int
    priority: float
    aborts: int
    log: str

    def member(self, group: str) -> int:
        """What it has in common with those that are reserved with it: S or T."""
        return self.s if group == "s" else self.t


class Criteria(NamedTuple):
    """What a reader wants."""

    type: str | None = None
    where: str | None = None
    order: str | None = None


class SelectionQuery(NamedTuple):
    """A statement and the values that belong to its texts."""

    statement: Statement
    values: dict[str, Any]
    text: str = ""
    short: Statement | None = None  # asks whether the queue is so short, beside its type, that it is walked along


# Take messages that are found, begin the transaction and write its log, in one; where nothing is found, nothing.
# By address, which is what a lock has just been got for: by number each would be looked for once more.
_TAKE: Final = """
    WITH taken AS (
        UPDATE {table} SET lsf = 'd', owner = :owner WHERE ctid = ANY(ARRAY({found}))
        RETURNING mid, s, t, type, priority, aborts),
    begun AS (
        INSERT INTO queue_transactions (number, s, instance, client, log, state, operations, messages, lease_us)
        SELECT :owner, :s, :instance, :client, :log, 'a', 1, 0, {{now}} + :lease_us WHERE EXISTS (SELECT 1 FROM taken)
        RETURNING 1),
    logged AS (
        INSERT INTO queue_log (transaction_number, operation, kind, queue, messages)
        SELECT :owner, 1, 'd', :queue, count(*) FROM taken HAVING count(*) > 0)
    SELECT mid, s, t, type, priority, aborts FROM taken"""


def taking(session: Session, catalogue: QueueCatalogue, queue: Queue, criteria: Criteria) -> SelectionQuery | None:
    """The statement that takes, on PostgreSQL, what `pick` would find, in any order; the first of a transaction.

    None: where that is not all there is to it, as where groups are reserved, or an order is asked for.
    """
    if queue.group or criteria.order or dialect_of(session) != "postgresql":
        return None
    kind = _required(catalogue, queue, criteria)
    return _taking(_Cached(catalogue, queue, kind.number if kind is not None else None), criteria.where)


def pick(
    session: Session, catalogue: QueueCatalogue, queue: Queue, criteria: Criteria, count: int, owner: int, own: bool,
    now: int, *, begun: bool = True, lock: bool = True, groups: int | None = None,
) -> list[Head]:  # fmt: skip
    """The messages that a transaction takes next, at most `count`, in order. `own`: it has enqueued some here itself.
    Unless it has `begun`, there is nothing that it has reserved. `groups` is how many the queue has, if that is known.

    Rows of the result are locked in a shared store; those that another broker is at are passed over.
    """
    kind = _required(catalogue, queue, criteria)
    dialect = dialect_of(session)
    values = {"now": now, "owner": owner, "queue": queue.number}
    plain = kind is None and not criteria.where and not criteria.order and not own
    # Messages in the order of arrival may be thousands of a writer that another reader has: where writers are few, and
    # one message is wanted, the oldest of each is looked at instead.
    heads = queue.group == "s" and count == 1 and groups is not None and groups <= FEW_GROUPS
    if queue.group and plain and not queue.prioritized and not heads:
        return _in_order(session, queue, values | {"count": count}, begun, dialect, lock)
    key = kind.number if kind is not None else None
    about = _Cached(catalogue, queue, key)
    finding = _finding(about, criteria.where, criteria.order, own, dialect, lock, count == 1)
    if finding.short is not None and session.row(finding.short)[0]:
        finding = _finding(about, criteria.where, criteria.order, own, dialect, lock, count == 1, walked=True)
    values |= {"count": count} | finding.values
    found_by = _asked if criteria.where or criteria.order else _found
    if not queue.group or not lock or dialect != "postgresql":
        return found_by(session, finding.statement, values)
    passed: set[int] = set()  # groups that another broker was quicker with; what is behind them counts instead
    for _ in range(LOOKS):
        found = found_by(session, finding.statement, values | {"passed": session.numbers(sorted(passed))})
        kept = _locked(session, queue, found, owner) if found else found
        if len(kept) == len(found):
            break
        passed |= {head.member(queue.group) for head in found} - {head.member(queue.group) for head in kept}
    return kept


def _in_order(
    session: Session, queue: Queue, values: dict[str, Any], begun: bool, dialect: Dialect, lock: bool
) -> list[Head]:
    """The next in the order of arrival. Groups that the reader has begun need no lock, and of blocks come first."""
    split = queue.group == "t" or (lock and dialect == "postgresql")
    free = _arrived(queue.table, queue.group, queue.arrival, dialect, lock, split)
    values = values | {"last": NEVER_US}
    held: list[int] = []
    if split and begun:
        held = [row[0] for row in session.rows(statements.HELD_GROUPS, queue=queue.number, owner=values["owner"])]
    if not held:
        return _found(session, free, values)
    begun_ones = _begun(queue.table, queue.group, queue.arrival)
    found = _found(
        session, begun_ones, {"members": session.numbers(held), "now": values["now"], "count": values["count"]}
    )
    if queue.group == "t":
        wanted = values["count"] - len(found)
        return found + (_found(session, free, values | {"count": wanted}) if wanted else [])
    if len(found) == values["count"]:  # behind these there is nothing to look for
        values["last"] = found[-1].t if queue.blocks else found[-1].mid
    found += _found(session, free, values)
    return sorted(found, key=lambda head: (head.t if queue.blocks else 0, head.mid))[: values["count"]]


def _found(session: Session, statement: Statement, values: dict[str, Any]) -> list[Head]:
    return [Head(*row) for row in session.rows(statement, **values)]


def _asked(session: Session, statement: Statement, values: dict[str, Any]) -> list[Head]:
    """The same for a statement with a client's expressions."""
    return [Head(*row) for row in session.bounded(statement, **values)]


def _required(catalogue: QueueCatalogue, queue: Queue, criteria: Criteria) -> TypeEntry | None:
    """The type that is asked for, if that says anything; refused when the queue does not take it."""
    if criteria.type is not None:
        kind = catalogue.taken_by(queue, criteria.type)
    elif len(queue.functions) == 1:
        kind = catalogue.types[next(iter(queue.functions))]
    elif criteria.where or criteria.order:
        raise WrongType(
            f"a predicate and an order are of one message type, and queue {queue.name!r} takes several: "
            f"name one of {', '.join(catalogue.types[number].name for number in queue.functions)}"
        )
    else:
        return None
    # A type is nothing to look for where there is no other.
    return kind if len(queue.functions) > 1 or criteria.where or criteria.order else None


def _locked(session: Session, queue: Queue, found: list[Head], owner: int) -> list[Head]:
    """In a shared store: what of it is still so, now that nobody else can change it."""
    group = queue.group
    members = sorted({head.member(group) for head in found if head.log == "c"})
    rows = session.rows(statements.LOCK_GROUPS, queue=queue.number, members=session.numbers(members), owner=owner)
    free = {row[0] for row in rows} | ({head.member(group) for head in found} - set(members))  # those are its own
    # Their rows need no lock: only who has the group takes them. One that an operator moves away is missed when it is
    # taken. A lock on messages of other groups would hide these from the readers that have them.
    mids = session.numbers([head.mid for head in found])
    there = {row[0] for row in session.rows(statements.still_there(queue.table), mids=mids)}
    # A group that has lost one is looked at the next time.
    gone = {head.member(group) for head in found if head.mid not in there}
    return [head for head in found if head.member(group) in free - gone]


# Statements


@lru_cache(maxsize=CACHED)
def _arrived(table: str, group: str, arrival: tuple[str, ...], dialect: Dialect, lock: bool, split: bool) -> Statement:
    """Messages in the order of arrival, of groups that are free; unless `split`, also of those that the reader has."""
    seen = "g.owner = 0 AND :owner <> 0" if split else "g.owner IN (0, :owner)"
    # CROSS JOIN: SQLite keeps the order of the tables, and so that of the index. Locked are groups alone: a lock on a
    # message whose group is another reader's would hide it from that reader, which would go on with the one behind it.
    return Statement(
        f"SELECT {HEADER} FROM {table} q CROSS JOIN queue_groups g "
        f"WHERE g.queue = :queue AND g.member = q.{group} AND {seen} AND q.lsf = 'c' AND {_NOW} "
        f"AND q.{arrival[0]} <= :last "
        f"ORDER BY {', '.join('q.' + name for name in arrival)} LIMIT :count {_locking(dialect, lock, 'g')}"
    )


@lru_cache(maxsize=CACHED)
def _begun(table: str, group: str, arrival: tuple[str, ...]) -> Statement:
    """Messages of groups that the reader has, in the order of arrival."""
    return Statement(
        f"SELECT {HEADER} FROM {table} q WHERE q.{group} {{in members}} AND q.lsf = 'c' AND {_NOW} "
        f"ORDER BY {', '.join('q.' + name for name in arrival)} LIMIT :count"
    )


class _Cached:
    """A catalogue, a queue and a type as a key: of one version of the catalogue they are always the same."""

    __slots__ = ("catalogue", "key", "kind", "queue")

    def __init__(self, catalogue: QueueCatalogue, queue: Queue, kind: int | None) -> None:
        self.catalogue = catalogue
        self.queue = queue
        self.kind = catalogue.types[kind] if kind is not None else None
        self.key = id(catalogue), queue.number, kind

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Cached) and self.key == other.key


@lru_cache(maxsize=CACHED)
def _finding(
    about: _Cached, where: str | None, order: str | None, own: bool, dialect: Dialect, lock: bool, one: bool,
    *, walked: bool = False,
) -> SelectionQuery:  # fmt: skip
    queue, kind = about.queue, about.kind
    tables = kind.tables if kind is not None else None
    predicate = query.compile(where, tables.schema).root if where and tables is not None else None
    sortings = query.ordering(order, tables.schema).keys if order and tables is not None else ()
    # By what messages contain, where nothing of the header is asked for: by the index of an attribute, or, where all
    # of them have to be looked at anyway, by going once through the type's table.
    about_all = [*([] if predicate is None else [predicate]), *(each.key for each in sortings)]
    indexed = predicate is not None and tables is not None and _by_index(predicate, tables)
    by_content = (
        (indexed or (bool(sortings) and not walked))
        and not queue.group
        and not any(isinstance(node, typed.HeaderField) for node in typed.walk(*about_all))
    )
    message = "r" if by_content else "q"
    values: dict[str, Any] = {}
    wanted, root = "", False
    if predicate is not None and tables is not None:
        made = sql.compile(predicate, tables, dialect, message=message, prefix="s")
        wanted, root = made.text, made.needs_root
        values |= made.values
    keys: list[_Key] = []
    for place, each in enumerate(sortings):
        assert tables is not None
        made = sql.compile(each.key, tables, dialect, message=message, prefix=f"o{place}_", where=False)
        root |= made.needs_root
        values |= made.values
        keys.append(_Key(made.text, "DESC NULLS FIRST" if each.descending else "ASC NULLS LAST"))
    form = _Form(queue, wanted, keys, own, dialect, lock)
    if by_content:
        assert tables is not None
        text = form.by_content(tables.root.name, tables.root.top, indexed)
        return SelectionQuery(Statement(text), values, text, None if indexed else _short(queue.table, tables.root.name))
    if not order:
        keys.append(_Key("q.priority", queue.direction.upper()))
    if kind is not None and len(queue.functions) > 1:
        values["type"] = kind.number
        wanted = f"q.type = :type AND ({wanted})" if wanted else "q.type = :type"
    form = form._replace(wanted=wanted or ("true" if dialect == "postgresql" else "1"))
    joined = ""
    if root and tables is not None:
        joined = f"{tables.root.name} r ON r.mid = q.mid{'' if tables.root.top else ' AND r.pos = 0'}"
    if not queue.group:
        text = form.sorted(joined) if order else form.scanned(joined)
    elif queue.group == "s":
        text = form.heads(joined) if one and not own else form.led(joined)
    else:
        text = form.blocks(joined)
    return SelectionQuery(Statement(text), values, text)


@lru_cache(maxsize=CACHED)
def _taking(about: _Cached, where: str | None) -> SelectionQuery:
    found = _finding(about, where, None, False, "postgresql", True, False)
    addresses = found.text.replace(f"SELECT {HEADER} FROM", "SELECT q.ctid FROM")
    return SelectionQuery(Statement(_TAKE.format(table=about.queue.table, found=addresses)), found.values)


def browsing(
    catalogue: QueueCatalogue, queue: Queue, criteria: Criteria, dialect: Dialect, lock: bool
) -> SelectionQuery:
    """Committed messages that are nobody's, by number, from `after` on, `count` at most."""
    kind = _required(catalogue, queue, criteria)
    return _browsing(
        _Cached(catalogue, queue, kind.number if kind is not None else None), criteria.where, dialect, lock
    )


@lru_cache(maxsize=CACHED)
def _browsing(about: _Cached, where: str | None, dialect: Dialect, lock: bool) -> SelectionQuery:
    queue, kind = about.queue, about.kind
    joins, wanted = "", ["q.lsf = 'c'", "q.owner = 0", "q.mid > :after"]
    values: dict[str, Any] = {}
    if where:
        assert kind is not None
        tables = kind.tables
        made = sql.compile(query.compile(where, tables.schema).root, tables, dialect, prefix="s")
        values |= made.values
        wanted.append(f"({made.text})")
        if made.needs_root:
            joins = f" JOIN {tables.root.name} r ON r.mid = q.mid{'' if tables.root.top else ' AND r.pos = 0'}"
    if kind is not None and len(queue.functions) > 1:
        values["type"] = kind.number
        wanted.append("q.type = :type")
    if queue.group:
        wanted.append(
            f"NOT EXISTS (SELECT 1 FROM queue_groups g WHERE g.queue = :queue AND g.member = q.{queue.group} "
            "AND g.owner <> 0)"
        )
    else:
        wanted.append(":queue > 0")
    return SelectionQuery(
        Statement(
            f"SELECT {HEADER} FROM {queue.table} q{joins} WHERE {' AND '.join(wanted)} ORDER BY q.mid LIMIT :count "
            f"{_locking(dialect, lock, 'q')}"
        ),
        values,
    )


class _Key(NamedTuple):
    text: str
    direction: str


class _Form(NamedTuple):
    queue: Queue
    wanted: str
    keys: list[_Key]
    own: bool
    dialect: Dialect
    lock: bool

    @property
    def _free(self) -> str:
        mine = "q.lsf = 'e' AND q.owner = :owner"
        return f"(q.lsf = 'c' AND q.owner = 0 OR {mine})" if self.own else "q.lsf = 'c' AND q.owner = 0"

    @property
    def _order(self) -> str:
        keys = (f"{key.text} {key.direction}" for key in self.keys)
        return ", ".join([*keys, *("q." + name for name in self.queue.arrival)])

    def scanned(self, joined: str) -> str:
        """In the order of an index, up to the first that are wanted."""
        joins = f" JOIN {joined}" if joined else ""
        return (
            f"SELECT {HEADER} FROM {self.queue.table} q{joins} WHERE {self._free} AND {_NOW} AND ({self.wanted}) "
            f"ORDER BY {self._order} LIMIT :count {_locking(self.dialect, self.lock, 'q')}"
        )

    def by_content(self, root: str, top: bool, indexed: bool) -> str:
        """First all messages of the type that are wanted, then those of this queue.

        Databases know little about a table that is empty every other minute, and would rather walk through a hundred
        thousand messages of the queue for the ten that are wanted, looking each of them up. So the queue's own index is
        hidden from them here; and, without an index of an attribute, that by numbers: the table is gone through from
        its first row on. What is wanted is sorted before it is looked up in the queue, up to the first that are there.
        """
        keys = [f"{key.text} AS k{place}" for place, key in enumerate(self.keys)]
        by = [f"w.k{place} {key.direction}" for place, key in enumerate(self.keys)]
        free = self._free.replace("q.lsf", "(q.lsf || '')").replace("q.owner", "(q.owner + 0)")
        wanted = [*([] if top else ["r.pos = 0"]), *([f"({self.wanted})"] if self.wanted else [])]
        if not indexed and self.dialect == "postgresql":
            wanted.append("r.ctid >= '(0,1)'")
        where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
        order = ", ".join([*by, "w.mid"] if by else [f"q.priority {self.queue.direction.upper()}", "q.mid"])
        found = f"SELECT {', '.join(['r.mid AS mid', *keys])} FROM {root} r{where}"
        if by and self.dialect == "postgresql":  # OFFSET keeps the two from being made one
            before, source = "", f"({found} ORDER BY {order.replace('w.', '')} OFFSET 0) w"
        else:
            before, source = f"WITH w AS MATERIALIZED ({found}) ", "w"
        return (
            f"{before}SELECT {HEADER} FROM {source} JOIN {self.queue.table} q ON q.mid = w.mid "
            f"WHERE {free} AND {_NOW} ORDER BY {order} LIMIT :count {_locking(self.dialect, self.lock, 'q')}"
        )

    def sorted(self, joined: str) -> str:
        """First all that are wanted, then their order."""
        joins = f" JOIN {joined}" if joined else ""
        keys = [f"{key.text} AS k{place}" for place, key in enumerate(self.keys)]
        by = [f"w.k{place} {key.direction}" for place, key in enumerate(self.keys)]
        return (
            f"WITH w AS MATERIALIZED (SELECT {', '.join(['q.mid AS mid', *keys])} FROM {self.queue.table} q{joins} "
            f"WHERE {self._free} AND {_NOW} AND ({self.wanted})) "
            f"SELECT {HEADER} FROM w JOIN {self.queue.table} q ON q.mid = w.mid WHERE {self._free} "
            f"ORDER BY {', '.join([*by, 'q.mid'])} LIMIT :count {_locking(self.dialect, self.lock, 'q')}"
        )

    def _seen(self, joined: str, columns: str, wanted: str) -> str:
        joins = f" LEFT JOIN {joined}" if joined else ""
        seen = "coalesce(g.owner, 0) IN (0, :owner)"
        mine = f" OR q.lsf = 'e' AND q.owner = :owner AND {seen}" if self.own else ""
        if self.lock and self.dialect == "postgresql":
            wanted += f" AND NOT q.{self.queue.group} {{in passed}}"
        return (
            f"SELECT {HEADER}, {columns} FROM {self.queue.table} q LEFT JOIN queue_groups g "
            f"ON g.queue = :queue AND g.member = q.{self.queue.group}{joins} "
            f"WHERE (q.lsf = 'c' AND g.member IS NOT NULL AND {seen}{mine}) AND {_NOW}{wanted}"
        )

    def heads(self, joined: str) -> str:
        """Of writers in order, one message: the best of the oldest ones. It takes as long as there are writers."""
        table, group = self.queue.table, self.queue.group
        first = (
            f"SELECT h.mid FROM {table} h WHERE h.{group} = g.member AND h.lsf = 'c' AND h.due_us <= :now "
            f"AND h.ends_us > :now ORDER BY {', '.join('h.' + name for name in self.queue.arrival)} LIMIT 1"
        )
        passed = " AND NOT g.member {in passed}" if self.lock and self.dialect == "postgresql" else ""
        joins = f" LEFT JOIN {joined}" if joined else ""
        return (
            f"SELECT {HEADER} FROM queue_groups g JOIN {table} q ON q.mid = ({first}){joins} "
            f"WHERE g.queue = :queue AND g.owner IN (0, :owner) AND ({self.wanted}){passed} "
            f"ORDER BY {self._order} LIMIT :count"
        )

    def led(self, joined: str) -> str:
        """Writers in order: see the drawing above. A message that is not wanted holds those behind it back."""
        arrival = ", ".join(self.queue.arrival)
        header = HEADER.replace("q.", "")
        seen = self._seen(
            joined,
            f"CASE WHEN {self.wanted} THEN 1 ELSE 0 END AS good, row_number() OVER (ORDER BY {self._order}) AS place",
            "",
        )
        return (
            f"WITH seen AS ({seen}), led AS (SELECT {header}, "
            f"min(good) OVER (PARTITION BY s ORDER BY {arrival}) AS good, "
            f"max(place) OVER (PARTITION BY s ORDER BY {arrival}) AS lead FROM seen) "
            f"SELECT {header} FROM led WHERE good = 1 ORDER BY lead, {arrival} LIMIT :count"
        )

    def blocks(self, joined: str) -> str:
        """Messages of blocks that the reader has begun, then whole blocks, by their best message.

        Messages that the transaction wrote itself are no block: their writer's transaction has not ended.
        """
        header = HEADER.replace("q.", "")
        seen = self._seen(
            joined,
            "CASE WHEN g.owner = :owner THEN 0 ELSE 1 END AS fresh, "
            f"row_number() OVER (ORDER BY {self._order}) AS place",
            f" AND ({self.wanted})",
        )
        return (
            f"WITH seen AS ({seen}), led AS (SELECT {header}, fresh, place, "
            "CASE WHEN fresh = 0 OR lsf = 'e' THEN place ELSE min(place) OVER (PARTITION BY t) END AS lead FROM seen) "
            f"SELECT {header} FROM led ORDER BY fresh, lead, place LIMIT :count"
        )


@lru_cache(maxsize=CACHED)
def _short(queue: str, root: str) -> Statement:
    """Whether looking up each message of a queue takes less than going through all of the type's, whichever queue's.

    PostgreSQL knows at once how large files are, dead rows included, which are read as well.
    """
    return Statement(
        f"SELECT count(*) <= {FEW_WAITING} FROM (SELECT 1 FROM {queue} LIMIT {FEW_WAITING + 1}) c",
        postgresql=f"SELECT pg_relation_size('{queue}') * {WALK} < pg_relation_size('{root}')",
    )


def _locking(dialect: Dialect, lock: bool, tables: str) -> str:
    """Not to be changed by others; a group that is locked so can still get messages."""
    return f"FOR NO KEY UPDATE OF {tables} SKIP LOCKED" if lock and dialect == "postgresql" else ""


def _by_index(root: typed.Typed, tables: sql.Tables) -> bool:
    """Whether a predicate says something about a value of the root that has an index."""
    indexed = {column.path for table, column in tables.indexes if table is tables.root}
    terms: Sequence[typed.Typed] = root.terms if isinstance(root, typed.And) else (root,)
    for term in terms:
        operands: tuple[typed.Typed, ...] = ()
        if isinstance(term, typed.Compare) and term.operator != "<>":
            operands = (term.left, term.right)
        elif isinstance(term, typed.Between | typed.In):
            operands = (term.operand,)
        elif (
            isinstance(term, typed.Fold)
            and term.operator == "any"
            and term.where is not None
            and _by_index(term.where, tables)
        ):
            return True
        for operand in operands:
            if (
                isinstance(operand, typed.ReadPath)
                and tuple(step.name for step in operand.steps if isinstance(step, typed.FieldStep)) in indexed
            ):
                return True
    return False


def dialect_of(session: Session) -> Dialect:
    """Which of the two a session speaks."""
    return "postgresql" if session.connection.dialect.name == "postgresql" else "sqlite"


def require_count(count: int) -> None:
    """Refuse a number of messages that cannot be meant."""
    if not 1 <= count <= COUNT_MOST:
        raise InvalidValue(f"count = {count}: takes 1 to {COUNT_MOST} messages")


COUNT_MOST: Final = 100_000  # messages of one dequeue: they travel, and are read, together
