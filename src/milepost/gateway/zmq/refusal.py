"""The nine errors of the ZeroMQ protocol, and how errors of Milepost map to them."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from milepost import errors

Name: TypeAlias = Literal[
    "SubscriberNotRegistered",
    "SubscriberAlreadyRegistered",
    "InexistentTopic",
    "DuplicateMessage",
    "TopicMismatch",
    "AckMessageMismatch",
    "UnknownMessage",
    "NoPostsInTopic",
    "NotExpectingAck",
]
NAMES: Final = get_args(Name)
DESCRIPTION_CHARS: Final = 1_000  # of an answer: one sentence, without an echo of a huge request

# The first match counts, so a subclass comes before its base class.
_BY_ERROR: Final[tuple[tuple[type[errors.MilepostError], Name], ...]] = (
    (errors.UnknownTopic, "InexistentTopic"),
    (errors.NotDurable, "InexistentTopic"),
    (errors.UnknownSubscription, "SubscriberNotRegistered"),
    (errors.TopicMismatch, "TopicMismatch"),
    (errors.SubscriptionExists, "SubscriberAlreadyRegistered"),
    (errors.DuplicateMessage, "DuplicateMessage"),
    (errors.AckMismatch, "AckMessageMismatch"),
    (errors.NotExpectingAck, "NotExpectingAck"),
    (errors.NothingThere, "NoPostsInTopic"),
)


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(
        self, name: Name, description: str, *, code: str, retry: bool = False, message_no: int | None = None
    ) -> None:
        super().__init__(description)
        self.name: Final[Name] = name
        self.description: Final = _short(description)
        self.code: Final = code
        self.retry: Final = retry
        self.message_no: Final = message_no  # number of a message that is handed out but cannot be shown


def refusal(error: errors.MilepostError) -> Refusal:
    """An error as ZeroMQ clients get it.

    Errors without one of the nine names, such as a full disk or a payload that does not fit its schema, are an
    UnknownMessage: the request was not carried out. `code` and `retry` say more.
    """
    name: Name = next((name for kind, name in _BY_ERROR if isinstance(error, kind)), "UnknownMessage")
    return Refusal(name, str(error), code=error.code, retry=error.retriable)


def busy(description: str) -> Refusal:
    """A request beyond one of the gateway's bounds, which may succeed later."""
    return Refusal("UnknownMessage", description, code="busy", retry=True)


def not_understood(description: str) -> Refusal:
    """A body that cannot be parsed."""
    return Refusal("UnknownMessage", description, code=errors.UnknownRequest.code)


def _short(text: str) -> str:
    return text if len(text) <= DESCRIPTION_CHARS else text[:DESCRIPTION_CHARS] + " …"
