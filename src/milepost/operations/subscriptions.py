"""Operations on named subscriptions, their cursors, and holds."""

from __future__ import annotations

from typing import Any, NamedTuple

from milepost.operations.records import Cursor, Part, Position, Start, TopicRecord


class Attach(NamedTuple):
    """Find or make a named subscription, and take it over from the process that served it. Outcome: `Attached`.

    `UnknownSubscription` when it does not exist and `create` is False; `TopicMismatch` or `SubscriptionExists` when the
    name belongs to another subscription; `ServedElsewhere` while another live broker serves it. When `token` is that of
    the request that made it, `created` is True again.

    The epoch rises, unless this process serves the subscription already. `given_up` is a subscription's number and an
    epoch that this process no longer serves, although the store may not know (`Release`): that epoch ends, too.
    """

    name: str
    topic: int  # 0: any topic; not with `create`
    where: str | None
    start: Start
    create: bool
    token: bytes
    options: dict[str, Any]  # "most", "dead": stored unchanged
    member: bytes  # the member whose last acknowledgement `Attached.sequence` tells
    given_up: tuple[int, int] | None = None


class Attached(NamedTuple):
    """A named subscription and its cursors."""

    subscription: int
    epoch: int
    created: bool
    topic: int
    where: str | None
    options: dict[str, Any]
    cursors: dict[int, Cursor]  # by log; for a log that is missing here, 0, the offset of its first row
    sequence: int  # of the member's last acknowledgement; 0: none
    unreleased: bool = False  # the broker that served it ended without a `Release`: the cursors may be old
    record: TopicRecord | None = None  # its topic, if `Attach.topic` was 0


class Move(NamedTuple):
    """Move cursors, remember an acknowledgement and store dead rows, atomically. Outcome: None.

    `ServedElsewhere` when the subscription has a newer epoch; `UnknownSubscription` when it was removed. `dead` is
    appended unchanged, with its IDs. `promised` is False when no client waits for it to be on disk.
    """

    subscription: int
    epoch: int
    cursors: dict[int, Cursor]
    member: bytes = b""
    sequence: int = 0
    dead: tuple[Part, ...] = ()
    promised: bool = True


class Release(NamedTuple):
    """Stop serving a subscription, so that other brokers may. Outcome: None."""

    subscription: int
    epoch: int


class RetentionHold(NamedTuple):
    """Make or move a hold, a named cursor without a consumer. Outcome: its `Position`, in all logs of the topic.

    It only moves forward in each log. Any broker may move it, since it has no owner; a repetition changes nothing. A
    new hold is made at `position`, or at the start of the retained rows. `SubscriptionExists` or `TopicMismatch` when a
    subscription, or a hold of another topic, has this name; `BrokerError` for a position past the end of a log.
    """

    name: str
    topic: int
    position: Position | None = None


class Remove(NamedTuple):
    """Remove a named subscription or a hold. Outcome: True, also when an earlier request with this `token` and name has
    removed it.

    `UnknownSubscription` when there is none.
    """

    name: str
    token: bytes = b""
