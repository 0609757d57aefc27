"""Publishers: the handshake gives a client its publisher number, its high water, and exclusive use of its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from milepost import limits
from milepost.broker.core.effects import Effect, Say, Write
from milepost.broker.core.sessions.connection import KINDS, Connection, PublisherIdentity
from milepost.broker.core.topics.topic import SLOW
from milepost.errors import ConnectionLost, Fenced, HandshakeRefused, MilepostError, NotAuthenticated
from milepost.operations import Enrol
from milepost.wire import PROTOCOL, Hello, Welcome

if TYPE_CHECKING:
    from milepost.broker.core.core import Core

MARKS_KEPT: Final = 100_000  # disconnected named publishers whose last stamp is remembered
INSTANCE_BYTES: Final = 16


class Publishers:
    """The connected publishers, and named ones that are disconnected."""

    def __init__(self, core: Core, draw: Callable[[], int]) -> None:
        self._core = core
        self._draw = draw
        self._numbers: set[int] = set()  # in use
        self._by_name: dict[str, Connection] = {}
        self._by_instance: dict[bytes, Connection] = {}
        self._away: dict[str, PublisherIdentity] = {}  # named, and not connected

    def hello(self, connection: Connection, hello: Hello, time_us: int) -> list[Effect]:
        """Handle a HELLO; raises if it is invalid."""
        if hello.protocol != PROTOCOL:
            raise HandshakeRefused(
                f"this broker speaks protocol {PROTOCOL}, the client {hello.protocol}; upgrade the older of the two"
            )
        if hello.auth.get("method", "none") != "none":
            raise NotAuthenticated(f"this broker knows no authentication by {str(hello.auth['method'])[:40]!r}")
        if hello.kind not in KINDS:
            raise HandshakeRefused(f"unknown kind of connection {hello.kind[:40]!r}; take one of {', '.join(KINDS)}")
        limits.require("NAME_CHARS", len(hello.name), "the characters of a client's name")
        if not hello.name.isprintable():
            raise HandshakeRefused("a client's name is shown to people: it takes printable characters only")
        if hello.window < 1:
            raise HandshakeRefused(f"a window of {hello.window} bytes lets no delivery through")
        if hello.slow is not None and hello.slow not in SLOW:
            raise HandshakeRefused(f"unknown slow-consumer policy {hello.slow[:40]!r}; take one of {', '.join(SLOW)}")
        if len(hello.instance) not in (0, INSTANCE_BYTES):
            raise HandshakeRefused(f"an instance has {INSTANCE_BYTES} bytes, not {len(hello.instance)}")
        effects: list[Effect] = []
        if hello.instance in self._by_instance:
            # Otherwise acknowledgements of the old connection could count after the new one was told of the last.
            again = ConnectionLost("this client has connected again")
            effects += self._core.refused(self._by_instance[hello.instance], again)
        publisher = self._publisher(hello.name, effects)
        connection.name, connection.publisher, connection.slow = hello.name, publisher, hello.slow
        connection.instance, connection.kind = hello.instance, hello.kind  # type: ignore[assignment]
        if hello.name:
            self._by_name[hello.name] = connection
        if hello.instance:
            self._by_instance[hello.instance] = connection
        key = hello.name or (f"~{hello.instance.hex()}" if hello.resume and hello.instance else "")
        if not self._core.durable.on or not key:
            return [*effects, *self._welcome(connection, hello, time_us)]
        self._core.greeting.pop(connection.number, None)  # no handshake timeout while the store answers
        # `Enrol` fences an older connection of this name at any broker of the store: its later puts are not stored.
        enrol = Enrol(key, publisher.number, create=bool(hello.name))
        return [*effects, Write(enrol, partial(self._enrolled, connection, hello, time_us))]

    def _enrolled(self, connection: Connection, hello: Hello, time_us: int, outcome: Any) -> list[Effect]:
        """Called when the store has found or made the publisher of a HELLO."""
        if not connection.open:
            return []
        if isinstance(outcome, MilepostError):
            return self._core.refused(connection, outcome)
        if outcome is None:
            return self._welcome(connection, hello, time_us)
        publisher = connection.publisher
        if outcome.number != publisher.number:
            self._numbers.discard(publisher.number)
            self._numbers.add(outcome.number)
            publisher.number = outcome.number
        publisher.last_stamp = max(publisher.last_stamp, outcome.high_water)
        publisher.enrolled = True
        return self._welcome(connection, hello, time_us, outcome.high_water)

    def _welcome(self, connection: Connection, hello: Hello, time_us: int, high_water: int = 0) -> list[Effect]:
        connection.window = min(hello.window, self._core.settings.delivery_window)
        connection.credit = connection.window - max(0, hello.held)
        connection.places = hello.places
        if not hello.places:
            self._core.placeless += 1
        connection.greeted = True
        connection.settle()
        self._core.greeting.pop(connection.number, None)
        welcome = Welcome(
            broker=self._core.settings.name,
            broker_id=self._core.broker_id,
            publisher=connection.publisher.number,
            high_water=high_water if self._core.durable.on else connection.publisher.last_stamp,
            last=connection.publisher.last_stamp,
            time_us=time_us,
            window=self._core.settings.put_window,
            delivery_window=connection.window,
            frame_bytes=self._core.settings.frame_bytes,
            heartbeat_s=self._core.settings.heartbeat_s,
            software=self._core.version,
            store_id=self._core.store_id,
        )
        return [Say(connection, welcome)]

    def _publisher(self, name: str, effects: list[Effect]) -> PublisherIdentity:
        """A known or new publisher. An older connection of the same name is closed."""
        if name in self._by_name:
            fenced = Fenced(f"another client called {name!r} has connected; names of clients are unique")
            effects += self._core.refused(self._by_name[name], fenced)
        if name in self._away:
            return self._away.pop(name)
        while True:
            number = self._draw()
            if number and number not in self._numbers:
                self._numbers.add(number)
                return PublisherIdentity(number, name)

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is gone; a named publisher keeps its number and last stamp."""
        publisher = connection.publisher
        if self._by_instance.get(connection.instance) is connection:
            del self._by_instance[connection.instance]
        if not publisher.name:
            if not publisher.enrolled:  # stored rows have its number: no other may use it
                self._numbers.discard(publisher.number)
            return
        if self._by_name.get(publisher.name) is connection:
            del self._by_name[publisher.name]
        self._away[publisher.name] = publisher
        if len(self._away) > MARKS_KEPT:
            longest = self._away.pop(next(iter(self._away)))
            self._numbers.discard(longest.number)
