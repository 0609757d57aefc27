"""Named subscriptions, their cursors, and holds."""

from __future__ import annotations

from typing import Any, NamedTuple

from milepost.operations.records import Cursor, Part, Position, Start, TopicRecord


class Attach(NamedTuple):
    """Find or make a named subscription, and take it over from whoever served it: `Attached`.

    `UnknownSubscription` when it is not there and `create` is False; `TopicMismatch` or `SubscriptionExists` when the
    name belongs to another one; `ServedElsewhere` while another broker that is alive serves it. When `token` is that of
    the request that made it, `created` is True again.

    The epoch rises, unless this process serves the subscription already. `given_up` is a number and an epoch that it
    serves no longer, although the store may not know (`Release`): that epoch is over too.
    """

    name: str
    topic: int  # 0: whatever topic it has; not with `create`
    where: str | None
    start: Start
    create: bool
    token: bytes
    options: dict[str, Any]  # "most", "dead": kept as they are
    member: bytes  # whose acknowledgements are asked about
    given_up: tuple[int, int] | None = None


class Attached(NamedTuple):
    """A named subscription, and how far it is."""

    subscription: int
    epoch: int
    created: bool
    topic: int
    where: str | None
    options: dict[str, Any]
    cursors: dict[int, Cursor]  # by log; a log that is not there begins at 0, the offset of its first row
    sequence: int  # of the member's last acknowledgement; 0: none
    unreleased: bool = False  # the broker that served it ended without a `Release`: its cursors may not tell everything
    record: TopicRecord | None = None  # its topic, when it was asked for without one


class Move(NamedTuple):
    """Move cursors, remember an acknowledgement, and store dead rows, in one: None.

    `ServedElsewhere` when the subscription has a newer epoch; `UnknownSubscription` when it was removed. `dead` is
    appended as it is, under the IDs it has. `promised` is False when nobody waits for it to be on disk.
    """

    subscription: int
    epoch: int
    cursors: dict[int, Cursor]
    member: bytes = b""
    sequence: int = 0
    dead: tuple[Part, ...] = ()
    promised: bool = True


class Release(NamedTuple):
    """Serve a subscription no longer; other brokers may: None."""

    subscription: int
    epoch: int


class RetentionHold(NamedTuple):
    """Make or move a hold, a named cursor that nobody is served from: where it is, a `Position` of all of its logs.

    It moves forward only, log by log, by whichever broker is asked: nobody owns it, so the same again changes nothing.
    A new one is made at `position`, or at what is there of the topic. `SubscriptionExists` or `TopicMismatch` when a
    subscription has this name, or a hold of another topic; `BrokerError` for a position behind the end of a log.
    """

    name: str
    topic: int
    position: Position | None = None


class Remove(NamedTuple):
    """Remove a named subscription or a hold: True; also when `token` is that of the request that removed it before,
    under this name.

    `UnknownSubscription` when there is none.
    """

    name: str
    token: bytes = b""
