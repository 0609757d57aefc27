"""The figures of a core, as plain values."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

from milepost.broker.core import counts

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.counts import Counts
    from milepost.broker.core.log.subscription import LogSubscription
    from milepost.broker.core.sessions.connection import Connection
    from milepost.broker.core.topics.topic import Topic

TOTALS: Final = ("rows_in", "rows_out", "bytes_in", "bytes_out", "batches_in")
OTHER_TOTALS: Final = (
    "rows_dropped", "batches_refused", "puts_throttled", "rows_staged", "epochs_published", "messages_enqueued",
    "messages_dequeued", "queue_transactions", "queue_commits", "queue_aborts",
)  # fmt: skip
CLIENT_FIGURES: Final = (
    "name", "kind", "peer", "number", "rows_in", "rows_out", "bytes_in", "bytes_out", "frames_out", "dropped_rows",
)  # fmt: skip
DEPTHS: Final = ("waiting", "delayed", "taken")  # states of messages in queues
WHERE_SHOWN: Final = 500  # characters of a predicate
LISTED: Final = 1_000  # topics, clients and subscriptions named one by one; a million would not fit into a frame


def statistics(core: Core, time_us: int) -> dict[str, Any]:
    """All figures. Up to `LISTED` clients, those with the largest backlogs first, and as many subscriptions."""
    open_ = [each for each in core.connections.values() if each.open]
    backlogs = [each.backlog for each in open_ if each.backlog is not None]
    clients = [each for each in open_ if each.greeted]
    clients.sort(key=_queued, reverse=True)
    subscriptions: list[dict[str, Any]] = []
    for connection in clients:
        for subscription in (connection.subscriptions or {}).values():
            if len(subscriptions) == LISTED:
                break
            rows = sum(core.numbered[number].rows_of(subscription) for number in subscription.keys)
            subscriptions.append(
                {
                    "client": connection.name or connection.peer,
                    "pattern": subscription.pattern,
                    "where": subscription.where and subscription.where[:WHERE_SHOWN],
                    "rows_out": rows,
                }
            )
    topics = list(core.topics.values())
    counted = core.catalogue.past + Counter(summed(topics))
    lags = {topic.name: _lags(topic) for topic in topics if topic.log_subscriptions}
    return {
        "name": core.settings.name,
        "version": core.version,
        "time_us": time_us,
        "connections": {
            "open": len(open_),
            "accepted": core.totals["connections_accepted"],
            "greeting": len(open_) - len(clients),
        },
        "topics": [_figures(topic, lags.get(topic.name, {})) for topic in topics[:LISTED]],
        "topics_total": len(topics),
        "topics_other": summed(topics[LISTED:]),
        "clients": [_client(each) for each in clients[:LISTED]],
        "subscriptions": subscriptions,
        "subscriptions_total": sum(len(each.subscriptions or ()) for each in clients),
        "totals": {name: counted[name] for name in TOTALS} | {name: core.totals[name] for name in OTHER_TOTALS},
        "queueing": core.queues.figures(),
        "errors": dict(core.errors),
        "memory": {"held": core.memory.held, "limit": core.memory.limit, "refused": core.memory.refused},
        "backlogs": {
            "connections": len(backlogs),
            "rows": sum(backlog.rows for backlog in backlogs),
            "bytes": sum(backlog.bytes for backlog in backlogs),
        },
        "counted_us": core.durable.counts.time_us,  # when the oldest figure below was counted; 0: never
        **_queues(core.durable.counts, time_us),
        **_behind_all(core.durable.counts, lags),
    }


def _queues(known: Counts, time_us: int) -> dict[str, Any]:
    """The queues with the most messages, each with its last counts, and the sums of the others."""

    def total(name: str) -> int:
        return sum(known.queues[name][state] for state in DEPTHS) if name in known.queues else 0

    listed = nlargest(counts.LISTED, known.queues, key=total)
    others = known.queues.keys() - set(listed)
    dead = known.last.dead
    return {
        "queues": [
            {state: known.queues[name][state] for state in DEPTHS}
            | {"name": name, "oldest_s": _age_s(known.queues[name]["oldest_us"], time_us)}
            | ({"dead": dead[name], "dead_letters": total(dead[name] or "")} if dead.get(name) else {})
            for name in listed
        ],
        "queues_total": len(dead),
        "queues_uncounted": len(dead.keys() - known.queues.keys()),
        "queues_other": {state: sum(known.queues[name][state] for name in others) for state in DEPTHS},
    }


def _age_s(since_us: int, time_us: int) -> float:
    return max(0, time_us - since_us) / 1e6 if since_us else 0.0


def _behind_all(known: Counts, served: dict[str, dict[str, int]]) -> dict[str, Any]:
    """The named subscriptions that lag most: the core's figure if it is served here, otherwise the last count."""
    lags = {(lag.topic, lag.subscription): lag.rows for lag in known.lags.largest}
    others = known.lags.rows - sum(lags.values())
    lags |= {(topic, name): rows for topic, each in served.items() for name, rows in each.items() if name}
    listed = nlargest(counts.LISTED, lags, key=lags.__getitem__)
    others += sum(lags.values()) - sum(lags[each] for each in listed)
    return {
        "lags": [{"topic": topic, "name": name, "rows": lags[topic, name]} for topic, name in listed],
        "lags_total": max(len(lags), known.lags.subscriptions),
        "lags_other": others,
    }


def summed(topics: list[Topic]) -> dict[str, int]:
    """What topics add to the totals, also after they are deleted."""
    return {name: sum(getattr(topic, name) for topic in topics) for name in TOTALS}


def described(topic: Topic) -> dict[str, Any]:
    """One topic, with the texts of its schemas."""
    return _figures(topic, _lags(topic)) | {"schemas": topic.announcement().schemas}


def _figures(topic: Topic, lags: dict[str, int]) -> dict[str, Any]:
    return {
        "name": topic.name,
        "number": topic.number,
        "slow": topic.slow,
        "subscriptions": len(topic),
        **summed([topic]),
        "durable": bool(topic.stored),
        "streams": len(topic.log_subscriptions),
        "behind": max(lags.values(), default=0),
    }


def _lags(topic: Topic) -> dict[str, int]:
    """The lag of each served subscription, by name; replays have the name "", and count as their largest lag."""
    found: dict[str, int] = {}
    for subscription in topic.log_subscriptions.values():
        found[subscription.name] = max(found.get(subscription.name, 0), _behind(topic, subscription))
    return found


def _behind(topic: Topic, subscription: LogSubscription) -> int:
    """The lag of a served subscription: offsets after its cursors in all logs, whether the rows match or not."""
    cursors = subscription.cursors()
    ends = topic.ends if subscription.stop is None else subscription.stop
    return sum(max(0, end - cursors.get(log, 0)) for log, end in ends.items())


def _client(connection: Connection) -> dict[str, Any]:
    backlog = connection.backlog
    return {name: getattr(connection, name) for name in CLIENT_FIGURES} | {
        "principal": connection.principal.name,
        "publisher": connection.publisher.number,
        "subscriptions": len(connection.subscriptions or ()),
        "queued_rows": backlog.rows if backlog is not None else 0,
        "queued_bytes": _queued(connection),
        "held_bytes": connection.held,
        "throttles": bool(backlog is not None and backlog.holds),
    }


def _queued(connection: Connection) -> int:
    return connection.backlog.bytes if connection.backlog is not None else 0
