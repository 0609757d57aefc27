"""A client's subscriptions, across connections."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from milepost.client.backoff import Backoff
from milepost.client.connection import BrokerConnection, Heard
from milepost.client.durable import DurableSubscription
from milepost.client.publisher import Publisher
from milepost.client.read import LogRead
from milepost.client.session import ClientSession
from milepost.client.subscription import Subscription
from milepost.errors import (
    ConnectionLost,
    InvalidValue,
    MilepostError,
    ServedElsewhere,
    SlowConsumer,
    SubscriptionExists,
    TimedOut,
    TopicMismatch,
    UnknownSubscription,
)
from milepost.wire import Control, Unsubscribe

Callback: TypeAlias = Callable[[Any], Awaitable[None] | None]
CAUSES_KEPT: Final = 1_000  # errors that ended subscriptions, for later calls
_log = logging.getLogger("milepost.client")


class Subscriptions:
    """The subscriptions of a client, by number: the tag of their deliveries."""

    def __init__(self) -> None:
        self.by_number: Final[dict[int, Subscription]] = {}
        self.session: ClientSession  # set by the client: the session needs `by_number` first
        self._numbers = 0
        self._dropped = 0  # rows, of subscriptions that have ended
        self._causes: dict[str, MilepostError] = {}  # of subscriptions that the broker ended: by topic, and by name

    def next_number(self) -> int:
        """The number of a new subscription."""
        self._numbers += 1
        return self._numbers

    @property
    def dropped(self) -> int:
        """Rows that the broker has dropped."""
        return self._dropped + sum(each.dropped for each in list(self.by_number.values()))

    def durable(self) -> list[DurableSubscription]:
        """The durable subscriptions."""
        return [each for each in self.by_number.values() if isinstance(each, DurableSubscription)]

    def one(self, topic: str) -> Subscription:
        """The one subscription with this name, topic or pattern."""
        self.session.require_open()
        found = self.called(topic)
        if not found:
            raise self._causes.get(topic) or UnknownSubscription(
                f"nothing is subscribed to {topic!r}; call subscribe first"
            )
        if len(found) > 1:
            raise InvalidValue(f"{len(found)} subscriptions are to {topic!r}; call get on the one you mean")
        return found[0]

    def called(self, name: str) -> Sequence[Subscription]:
        """The durable subscription of this name, or all to that topic or pattern; no reads."""
        every = [each for each in self.by_number.values() if not isinstance(each, LogRead)]
        named = [each for each in every if isinstance(each, DurableSubscription) and each.options.name == name]
        return named or [each for each in every if each.pattern == name]

    # Beginning

    async def begin(self, subscription: Subscription) -> None:
        """Ask the broker for a new subscription. Raises the broker's error."""
        if isinstance(subscription, DurableSubscription):
            self._require_free(subscription)
        self.by_number[subscription.number] = subscription  # deliveries may follow right after the reply
        self._causes.pop(subscription.pattern, None)
        if isinstance(subscription, DurableSubscription):
            self._causes.pop(subscription.options.name, None)
        try:
            if isinstance(subscription, DurableSubscription):
                await self._attach(subscription)
            else:
                await self._ask(subscription, subscription.request, subscription.attached)
        except BaseException:
            self.by_number.pop(subscription.number, None)
            raise

    async def _ask(
        self, subscription: Subscription, make: Callable[[int], Control], heard: Heard | None = None
    ) -> tuple[BrokerConnection, Any]:
        """Send a subscribe request. Without an answer, unsubscribe: the broker may have it and deliver rows."""
        answered = False
        try:
            reply = await self.session.ask_on(make, heard=heard)
            answered = True
            return reply
        except TimedOut:
            raise
        except MilepostError:
            answered = True  # by a refusal; or the connection is gone, and its subscriptions with it
            raise
        finally:
            if not answered and self.session.connection is not None:
                self.session.connection.unsubscribe(subscription.number)

    def _require_free(self, subscription: DurableSubscription) -> None:
        """Refuse a name that this client already uses: acknowledgements are numbered by client and name.

        With two under one name, the broker's report on one after a lost connection would be taken for the other's.
        """
        name = subscription.options.name
        for each in self.durable():
            if name and each.options.name == name:
                kind = SubscriptionExists if each.pattern == subscription.pattern else TopicMismatch
                raise kind(
                    f"this client is subscribed as {name!r} already, to {each.pattern!r}: take from it, or detach "
                    "it first; to share the messages, subscribe with another client"
                )

    async def _attach(self, subscription: DurableSubscription) -> None:
        """Ask for a durable subscription; retry, for the client's timeout, while another broker serves it.

        Another broker of the cell may serve it until it has noticed that its clients are gone.
        """
        backoff = Backoff()
        refused: ServedElsewhere | None = None
        try:
            async with asyncio.timeout(self.session.timeout):
                while True:
                    try:
                        connection, reply = await self._ask(subscription, subscription.request)
                    except ServedElsewhere as error:
                        refused = error
                        await asyncio.sleep(backoff.next())
                        continue
                    subscription.attached(connection, reply)
                    return
        except TimeoutError:
            if refused is not None:
                raise refused from None
            raise TimedOut(f"the broker did not answer within {self.session.timeout:g} s") from None

    async def serve(self, subscription: Subscription, callback: Callback, batches: bool) -> None:
        """The task of a callback."""
        try:
            if not batches:
                await subscription.serve(callback)
                return
            async for batch in subscription.batches():
                made = callback(batch)
                if made is not None and inspect.isawaitable(made):
                    await made
        except Exception as error:
            if error is not subscription.error:  # otherwise the connection ended it, and has logged that
                _log.exception("the callback of the subscription to %s failed; it ends here", subscription.name)
                self.stop(subscription, error)

    # Ending

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; a named one is removed for good. Raises the error that ended it before."""
        if self.by_number.get(subscription.number) is subscription:
            durable = subscription.options.name if isinstance(subscription, DurableSubscription) else ""
            if durable:
                assert isinstance(subscription, DurableSubscription)
                # Removed first, then forgotten: if this fails, the subscription remains, and the caller can retry.
                subscription.removing = True
                try:
                    await self.remove(durable, subscription.number, subscription.removal)
                except UnknownSubscription:
                    pass  # gone either way
                except BaseException:
                    subscription.removing = False
                    raise
                self._forget(subscription)
            else:
                self._forget(subscription)
                await self._let_go(subscription)
        subscription.end()  # releases the waiting rows of one that ended before, which would reduce the client's window
        if subscription.error is not None:
            raise subscription.error

    async def detach(self, subscription: DurableSubscription) -> None:
        """Leave a durable subscription. A named one stays at the broker, and its backlog grows."""
        if self.by_number.get(subscription.number) is subscription:
            if self.session.failure is None:
                try:
                    async with asyncio.timeout(self.session.timeout):
                        await subscription.settle()
                except (TimeoutError, MilepostError) as error:
                    _log.warning("acknowledgements of %s may be missing: %s", subscription.name, error)
            seen = subscription.seen() if subscription.options.name else None
            self._forget(subscription)
            await self._let_go(subscription, seen)
        if subscription.error is not None:
            raise subscription.error

    def _forget(self, subscription: Subscription) -> None:
        if self.by_number.pop(subscription.number, None) is not None:
            self._dropped += subscription.dropped
        subscription.end()

    async def _let_go(self, subscription: Subscription, seen: dict[int, list[list[int]]] | None = None) -> None:
        """Tell the broker to stop deliveries for a subscription."""
        number = subscription.number
        if self.session.connection is not None and self.session.failure is None:
            try:
                await self.session.ask(lambda request: Unsubscribe(request=request, subscription=number, seen=seen))
            except (UnknownSubscription, ConnectionLost):
                pass  # gone either way

    def leave(self) -> None:
        """Before the client disconnects: report which rows of named subscriptions the application has seen."""
        connection = self.session.connection
        for subscription in self.durable():
            if connection is not None and subscription.options.name and subscription.confirmed:
                connection.unsubscribe(subscription.number, subscription.seen())

    async def remove(self, name: str, number: int, token: bytes) -> None:
        """Remove a named subscription. A repeated token means the same removal, also on another connection."""
        await self.session.ask(
            lambda request: Unsubscribe(request=request, subscription=number, name=name, token=token)
        )

    def stop(self, subscription: Subscription, error: BaseException | None = None, *, told: bool = False) -> None:
        """End a subscription that cannot continue; `told`: the broker already knows."""
        if self.by_number.pop(subscription.number, None) is not None:
            self._dropped += subscription.dropped
            if self.session.connection is not None and not told:
                self.session.connection.unsubscribe(subscription.number)
        subscription.end(error)

    def ended(self, number: int, error: MilepostError | None) -> None:
        """The broker ended a subscription. Waiting messages can still be taken; any error is raised after them.

        A durable one is requested again when that can help: another broker of the cell may have taken it over.
        """
        subscription = self.by_number.get(number)
        connection = self.session.connection
        if error is None:
            if subscription is not None:
                del self.by_number[number]
                subscription.complete = True
                subscription.end(keep=True)
        elif isinstance(subscription, DurableSubscription) and error.retriable and connection is not None:
            _log.warning("the subscription %s was interrupted: %s", subscription.name, error)
            subscription.detached(connection)
            self.session.start(self._keep_attaching(connection, subscription), f"attaching {subscription.name}")
        elif subscription is not None:
            self._ended(subscription, error)

    def _ended(self, subscription: Subscription, error: MilepostError) -> None:
        del self.by_number[subscription.number]
        if len(self._causes) < CAUSES_KEPT:
            name = subscription.options.name if isinstance(subscription, DurableSubscription) else ""
            self._causes |= dict.fromkeys(filter(None, (subscription.pattern, name)), error)
        self._dropped += subscription.dropped
        subscription.end(error, keep=True)

    # Connecting and disconnecting

    def detached(self, connection: BrokerConnection, error: MilepostError) -> None:
        """A connection is gone. If the client was too slow, its plain subscriptions end with that error."""
        for subscription in list(self.by_number.values()):
            subscription.detached(connection)
            if isinstance(error, SlowConsumer) and subscription.confirmed and not _is_durable(subscription):
                self._ended(subscription, error)

    async def restore(self, connection: BrokerConnection, publisher: Publisher) -> None:
        """Restore the subscriptions on a new connection, which has none."""
        for subscription in list(self.by_number.values()):
            if not subscription.confirmed or subscription.ended:
                continue  # its subscribe call is still in flight, or was cancelled
            if not _is_durable(subscription) and subscription.pattern in publisher.schemas:
                try:
                    await publisher.redeclare(connection.ask, subscription.pattern)
                except ConnectionLost:
                    raise
                except MilepostError as error:
                    self._not_back(subscription, error)
                    continue
            await self._attach_again(connection, subscription)

    async def _attach_again(self, connection: BrokerConnection, subscription: Subscription) -> None:
        """Restore a subscription on a new connection; a retriable error is retried in a task of its own."""
        try:
            await self._ask_again(connection, subscription)
        except ConnectionLost:
            raise
        except MilepostError as error:
            if error.retriable:
                _log.warning("the subscription %s is not back yet: %s", subscription.name, error)
                self.session.start(self._keep_attaching(connection, subscription), f"attaching {subscription.name}")
                return
            if (
                isinstance(subscription, DurableSubscription)
                and subscription.removing
                and isinstance(error, UnknownSubscription)
            ):
                return  # the reply was lost, and its unsubscribe call asks again
            self._not_back(subscription, error)

    async def _ask_again(self, connection: BrokerConnection, subscription: Subscription) -> None:
        await connection.ask(lambda number: subscription.request(number, back=True), heard=subscription.attached)
        if subscription.number not in self.by_number:  # ended meanwhile
            connection.unsubscribe(subscription.number)

    def _not_back(self, subscription: Subscription, error: MilepostError) -> None:
        _log.error("the subscription to %s did not come back: %s", subscription.name, error)
        self.stop(subscription, error)

    async def _keep_attaching(self, connection: BrokerConnection, subscription: Subscription) -> None:
        backoff = Backoff()
        while True:
            await asyncio.sleep(backoff.next())
            if not connection.alive or subscription.ended:
                return
            try:
                await self._ask_again(connection, subscription)
                return
            except ConnectionLost:
                return  # the next connection tries
            except MilepostError as error:
                if not error.retriable:
                    self._not_back(subscription, error)
                    return


def _is_durable(subscription: Subscription) -> bool:
    return isinstance(subscription, DurableSubscription)
