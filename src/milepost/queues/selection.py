"""The selection of a dequeue's messages: the statement that finds them, in order, for each level.

There are four forms. At level none, messages are read in the order of priority by an index, or are selected first and
then sorted. At the other levels messages belong to groups, and one consumer at a time may have a group. Without
priorities, predicate or ordering function, an index gives the order of arrival. Otherwise all messages that the
consumer may see are ranked; in a group that is read in order, no message precedes earlier ones of its group::

    rank     1  2  3  4  5  6        by priority or ordering function, whatever the writer
    writer   b  a  b  a  a  b
    arrival  2. 2. 1. 1. 3. 3.       within its writer
    lead     3  4  3  4  5  6        the highest rank up to it, within its writer
    taken    2. 4. 1. 3. 5. 6.       by lead, then arrival: as if a consumer always took the best of the oldest
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

LOOKS: Final = 10  # most attempts while other brokers take the same messages; then the dequeue gets fewer, or none
FEW_GROUPS: Final = 200  # most writers whose oldest messages are read one by one, in a millisecond or two
WALK: Final = 8  # cost of a row's lookup by message number, in rows of a sequential scan
FEW_WAITING: Final = 1_000  # messages that are looked up one by one in a millisecond, whatever the size of the table
HEADER: Final = "q.mid, q.s, q.t, q.type, q.priority, q.aborts, q.lsf"
_NOW: Final = "q.due_us <= :now AND q.ends_us > :now"


class Head(NamedTuple):
    """The header of a message, from the queue's table."""

    mid: int
    s: int
    t: int
    type: int
    priority: float
    aborts: int
    log: str

    def member(self, group: str) -> int:
        """S or T: shared by the messages that are reserved together."""
        return self.s if group == "s" else self.t


class Criteria(NamedTuple):
    """The criteria of a consumer."""

    type: str | None = None
    where: str | None = None
    order: str | None = None


class SelectionQuery(NamedTuple):
    """A statement and the values of its expressions."""

    statement: Statement
    values: dict[str, Any]
    text: str = ""
    short: Statement | None = None  # tells whether the queue is short enough, compared with its type, to scan it


# Take the found messages, begin the transaction and write its log, in one statement; if none is found, do nothing.
# Rows are updated by address (ctid), since they are locked already: by number each would be looked up once more.
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
    """PostgreSQL: the statement that takes the messages that `pick` would find, in any order, and begins a transaction.

    None when one statement is not enough: when groups are reserved, or an order is requested.
    """
    if queue.group or criteria.order or session.dialect != "postgresql":
        return None
    kind = _required(catalogue, queue, criteria)
    return _taking(_Cached(catalogue, queue, kind), criteria.where)


def pick(
    session: Session, catalogue: QueueCatalogue, queue: Queue, criteria: Criteria, count: int, owner: int, own: bool,
    now: int, *, begun: bool = True, lock: bool = True, groups: int | None = None,
) -> list[Head]:  # fmt: skip
    """The messages that a transaction takes next, at most `count`, in order. `own`: it has enqueued some here itself.
    Unless it has `begun`, it has reserved no group. `groups` is the number of the queue's groups, if known.

    Rows of the result are locked in a shared store; rows that another broker has locked are skipped.
    """
    kind = _required(catalogue, queue, criteria)
    dialect = session.dialect
    values: dict[str, Any] = {"now": now, "owner": owner, "queue": queue.number}
    plain = kind is None and not criteria.where and not criteria.order and not own
    # The oldest messages may be thousands of a writer that another consumer has reserved. If writers are few, and one
    # message is wanted, the oldest message of each writer is read instead.
    heads = queue.group == "s" and count == 1 and groups is not None and groups <= FEW_GROUPS
    if queue.group and plain and not queue.prioritized and not heads:
        return _in_order(session, queue, values | {"count": count}, begun, dialect, lock)
    about = _Cached(catalogue, queue, kind)
    finding = _finding(about, criteria.where, criteria.order, own, dialect, lock, count == 1)
    if finding.short is not None and session.row(finding.short)[0]:
        finding = _finding(about, criteria.where, criteria.order, own, dialect, lock, count == 1, walked=True)
    values |= {"count": count} | finding.values
    ask = session.bounded if criteria.where or criteria.order else session.rows
    if not queue.group or not lock or dialect != "postgresql":
        return [Head(*row) for row in ask(finding.statement, **values)]
    passed: set[int] = set()  # groups that another broker has reserved first; later ones are taken instead
    for _ in range(LOOKS):
        found = [Head(*row) for row in ask(finding.statement, **values, passed=session.numbers(sorted(passed)))]
        kept = _locked(session, queue, found, owner) if found else found
        if len(kept) == len(found):
            break
        passed |= {head.member(queue.group) for head in found} - {head.member(queue.group) for head in kept}
    return kept


def _in_order(
    session: Session, queue: Queue, values: dict[str, Any], begun: bool, dialect: Dialect, lock: bool
) -> list[Head]:
    """The next messages in the order of arrival. The consumer's own groups need no lock; its own blocks come first."""
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
    if len(found) == values["count"]:  # later messages are not needed
        values["last"] = found[-1].t if queue.blocks else found[-1].mid
    found += _found(session, free, values)
    return sorted(found, key=lambda head: (head.t if queue.blocks else 0, head.mid))[: values["count"]]


def _found(session: Session, statement: Statement, values: dict[str, Any]) -> list[Head]:
    return [Head(*row) for row in session.rows(statement, **values)]


def _required(catalogue: QueueCatalogue, queue: Queue, criteria: Criteria) -> TypeEntry | None:
    """The requested type, or None if no condition on the type is needed; `WrongType` if the queue refuses it."""
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
    # A queue of one type needs no condition on the type.
    return kind if len(queue.functions) > 1 or criteria.where or criteria.order else None


def _locked(session: Session, queue: Queue, found: list[Head], owner: int) -> list[Head]:
    """In a shared store: lock the groups of messages. Returns the messages that can still be taken."""
    group = queue.group
    members = sorted({head.member(group) for head in found if head.log == "c"})
    rows = session.rows(statements.LOCK_GROUPS, queue=queue.number, members=session.numbers(members), owner=owner)
    free = {row[0] for row in rows} | ({head.member(group) for head in found} - set(members))  # those are its own
    # The messages need no lock: only the owner of their group takes them. If an operator moves one away, the take
    # notices that. A lock on messages of other groups would hide them from the consumers that own these groups.
    mids = session.numbers([head.mid for head in found])
    there = {row[0] for row in session.rows(statements.about(statements.STILL_THERE, queue.table), mids=mids)}
    # A group that has lost a message is left to the next attempt.
    gone = {head.member(group) for head in found if head.mid not in there}
    return [head for head in found if head.member(group) in free - gone]


# Statements


@lru_cache(maxsize=CACHED)
def _arrived(table: str, group: str, arrival: tuple[str, ...], dialect: Dialect, lock: bool, split: bool) -> Statement:
    """Messages in the order of arrival, of free groups; unless `split`, also of the consumer's own groups."""
    seen = "g.owner = 0 AND :owner <> 0" if split else "g.owner IN (0, :owner)"
    # CROSS JOIN: SQLite keeps the order of the tables, and so that of the index. Only groups are locked: a lock on a
    # message would hide it from the consumer that owns its group, which would then take the next message first.
    return Statement(
        f"SELECT {HEADER} FROM {table} q CROSS JOIN queue_groups g "
        f"WHERE g.queue = :queue AND g.member = q.{group} AND {seen} AND q.lsf = 'c' AND {_NOW} "
        f"AND q.{arrival[0]} <= :last "
        f"ORDER BY {', '.join('q.' + name for name in arrival)} LIMIT :count {_locking(dialect, lock, 'g')}"
    )


@lru_cache(maxsize=CACHED)
def _begun(table: str, group: str, arrival: tuple[str, ...]) -> Statement:
    """Messages of the consumer's own groups, in the order of arrival."""
    return Statement(
        f"SELECT {HEADER} FROM {table} q WHERE q.{group} {{in members}} AND q.lsf = 'c' AND {_NOW} "
        f"ORDER BY {', '.join('q.' + name for name in arrival)} LIMIT :count"
    )


class _Cached:
    """A catalogue, a queue and a type as a cache key: within one version of the catalogue they never change."""

    __slots__ = ("catalogue", "key", "kind", "queue")

    def __init__(self, catalogue: QueueCatalogue, queue: Queue, kind: TypeEntry | None) -> None:
        self.catalogue = catalogue
        self.queue = queue
        self.kind = kind
        self.key = id(catalogue), queue.number, kind and kind.number

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
    # Start from the content, if the query uses no header field: by the index of an attribute; or, if all messages have
    # to be read anyway, by one scan of the type's table.
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
        joined = f" {'LEFT ' if queue.group else ''}JOIN {root_of(tables)}"
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
    """Committed messages that are not taken or reserved, by number, above `after`, at most `count`."""
    kind = _required(catalogue, queue, criteria)
    return _browsing(_Cached(catalogue, queue, kind), criteria.where, dialect, lock)


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
            joins = f" JOIN {root_of(tables)}"
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
        """In the order of an index, up to the first `count` wanted messages."""
        return (
            f"SELECT {HEADER} FROM {self.queue.table} q{joined} WHERE {self._free} AND {_NOW} AND ({self.wanted}) "
            f"ORDER BY {self._order} LIMIT :count {_locking(self.dialect, self.lock, 'q')}"
        )

    def by_content(self, root: str, top: bool, indexed: bool) -> str:
        """First all wanted messages of the type, then those of them that are in this queue.

        Databases have poor statistics about tables that are often empty, and would look up a hundred thousand messages
        of the queue, one by one, for the ten that are wanted. So this statement hides the queue's own index from the
        planner; and, without an index of an attribute, the index by numbers, so that the table is scanned from its
        first row. Wanted messages are sorted before they are looked up in the queue, up to the first that are there.
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
        if by and self.dialect == "postgresql":  # OFFSET keeps the planner from merging the two queries
            before, source = "", f"({found} ORDER BY {order.replace('w.', '')} OFFSET 0) w"
        else:
            before, source = f"WITH w AS MATERIALIZED ({found}) ", "w"
        return (
            f"{before}SELECT {HEADER} FROM {source} JOIN {self.queue.table} q ON q.mid = w.mid "
            f"WHERE {free} AND {_NOW} ORDER BY {order} LIMIT :count {_locking(self.dialect, self.lock, 'q')}"
        )

    def sorted(self, joined: str) -> str:
        """First all wanted messages, then their order."""
        keys = [f"{key.text} AS k{place}" for place, key in enumerate(self.keys)]
        by = [f"w.k{place} {key.direction}" for place, key in enumerate(self.keys)]
        return (
            f"WITH w AS MATERIALIZED (SELECT {', '.join(['q.mid AS mid', *keys])} FROM {self.queue.table} q{joined} "
            f"WHERE {self._free} AND {_NOW} AND ({self.wanted})) "
            f"SELECT {HEADER} FROM w JOIN {self.queue.table} q ON q.mid = w.mid WHERE {self._free} "
            f"ORDER BY {', '.join([*by, 'q.mid'])} LIMIT :count {_locking(self.dialect, self.lock, 'q')}"
        )

    def _seen(self, joined: str, columns: str, wanted: str) -> str:
        seen = "coalesce(g.owner, 0) IN (0, :owner)"
        mine = f" OR q.lsf = 'e' AND q.owner = :owner AND {seen}" if self.own else ""
        if self.lock and self.dialect == "postgresql":
            wanted += f" AND NOT q.{self.queue.group} {{in passed}}"
        return (
            f"SELECT {HEADER}, {columns} FROM {self.queue.table} q LEFT JOIN queue_groups g "
            f"ON g.queue = :queue AND g.member = q.{self.queue.group}{joined} "
            f"WHERE (q.lsf = 'c' AND g.member IS NOT NULL AND {seen}{mine}) AND {_NOW}{wanted}"
        )

    def heads(self, joined: str) -> str:
        """One message of writers in order: the best of the oldest ones. Its time is proportional to the writers."""
        table, group = self.queue.table, self.queue.group
        first = (
            f"SELECT h.mid FROM {table} h WHERE h.{group} = g.member AND h.lsf = 'c' AND h.due_us <= :now "
            f"AND h.ends_us > :now ORDER BY {', '.join('h.' + name for name in self.queue.arrival)} LIMIT 1"
        )
        passed = " AND NOT g.member {in passed}" if self.lock and self.dialect == "postgresql" else ""
        return (
            f"SELECT {HEADER} FROM queue_groups g JOIN {table} q ON q.mid = ({first}){joined} "
            f"WHERE g.queue = :queue AND g.owner IN (0, :owner) AND ({self.wanted}){passed} "
            f"ORDER BY {self._order} LIMIT :count"
        )

    def led(self, joined: str) -> str:
        """Writers in order, as in the module's drawing. A message that is not wanted blocks its writer's later ones."""
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
        """Messages of blocks that the consumer has begun, then whole blocks, by their best message.

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
    """Whether looking up each message of a queue is faster than scanning all messages of the type, in all queues.

    PostgreSQL compares file sizes, which it knows at once; they include dead rows, which are read as well.
    """
    return Statement(
        f"SELECT count(*) <= {FEW_WAITING} FROM (SELECT 1 FROM {queue} LIMIT {FEW_WAITING + 1}) c",
        postgresql=f"SELECT pg_relation_size('{queue}') * {WALK} < pg_relation_size('{root}')",
    )


def root_of(tables: sql.Tables) -> str:
    """The table with the roots of messages, for a JOIN with their headers `q`."""
    return f"{tables.root.name} r ON r.mid = q.mid{'' if tables.root.top else ' AND r.pos = 0'}"


def _locking(dialect: Dialect, lock: bool, tables: str) -> str:
    """The lock clause of a query; a group with this lock can still get messages."""
    return f"FOR NO KEY UPDATE OF {tables} SKIP LOCKED" if lock and dialect == "postgresql" else ""


def _by_index(root: typed.Typed, tables: sql.Tables) -> bool:
    """Whether a predicate restricts an indexed value of the root table."""
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


def require_count(count: int) -> None:
    """Refuse a number of messages that is out of range."""
    if not 1 <= count <= COUNT_MOST:
        raise InvalidValue(f"count = {count}: takes 1 to {COUNT_MOST} messages")


COUNT_MOST: Final = 100_000  # messages of one dequeue: they are read and sent together
