"""The synchronous face has what the asynchronous one has."""

import inspect

import pytest

from milepost.client import AsyncClient, Client
from milepost.client.client import _SHOWN, _SHOWN_OF_DURABLE, SyncSubscription, SyncTransaction
from milepost.client.durable import DurableSubscription
from milepost.client.options import checked_options
from milepost.client.subscription import Subscription
from milepost.client.transaction import Transaction

# What the client and the connection call, and applications do not.
GIVEN = {"advance", "attached", "caught_up", "complete", "confirmed", "current", "deliver", "detached", "drop", "end"}
GIVEN |= {"hand", "handed", "lose", "next_batch", "request", "resumable", "serve", "skip", "take"}
GIVEN_OF_DURABLE = {"abandoned", "acks", "give_back", "handed_out", "named", "refused", "removal", "removing", "seen"}
GIVEN_OF_DURABLE |= {"settle", "token"}
GIVEN_OF_TRANSACTIONS = {"tell_abort"}


def public(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def parameters(method):
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize(
    ("asynchronous", "synchronous", "given"),
    [(AsyncClient, Client, set()), (Transaction, SyncTransaction, GIVEN_OF_TRANSACTIONS)],
)
def test_both_faces_have_the_same_names_and_parameters(asynchronous, synchronous, given):
    assert public(asynchronous) - given == public(synchronous)
    for name in public(synchronous):
        if callable(method := getattr(asynchronous, name)):
            assert parameters(method) == parameters(getattr(synchronous, name)), name


def test_both_faces_of_a_subscription_have_the_same_names_and_parameters():
    plain = Subscription(None, 1, "topic", None)
    durable = DurableSubscription(
        None, 1, "topic", None, checked_options("name", None, "auto", 1, None, None, True), bytes(16)
    )
    face = public(SyncSubscription)
    assert public(plain) - GIVEN - face == set(_SHOWN)
    assert public(durable) - public(plain) - GIVEN_OF_DURABLE - face == set(_SHOWN_OF_DURABLE)
    for name in face:
        assert parameters(getattr(DurableSubscription, name)) == parameters(getattr(SyncSubscription, name)), name
