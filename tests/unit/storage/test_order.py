"""Publishers that move between the brokers of one database keep their order, for whoever reads all logs."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from milepost.batch import Batch
from milepost.operations import Append, Part, StoredEntry
from milepost.storage import Store
from tests.unit.storage.conftest import SCHEMA, Rig, rows


def read_all(store: Store, topic: int, logs: list[int], chance: random.Random) -> list[tuple[int, int]]:
    """Read all logs in any order that the entries allow; (publisher, stamp) of each row."""
    waiting: dict[int, list[StoredEntry]] = {}
    for log in logs:
        offset = 0
        waiting[log] = []
        while entries := store.read(topic, log, offset):
            waiting[log] += entries
            offset = entries[-1].first + entries[-1].rows
    cursors = dict.fromkeys(logs, 0)
    found: list[tuple[int, int]] = []
    while any(waiting.values()):
        ready = [
            log
            for log, entries in waiting.items()
            if entries and (entries[0].after is None or cursors[entries[0].after[0]] >= entries[0].after[1])
        ]
        assert ready, "each waits for the other"
        log = chance.choice(ready)
        entry = waiting[log].pop(0)
        cursors[log] = entry.first + entry.rows
        ids = Batch.decode(entry.data, SCHEMA).ids
        assert ids is not None
        found += [(ids[row].publisher, ids[row].stamp) for row in range(entry.rows)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_order_is_kept_over_all_logs(postgresql_rig: Rig, seed: int) -> None:
    rig, chance = postgresql_rig, random.Random(seed)
    names = ["one", "two", "three"]
    stores = {name: rig.open(name) for name in names}
    logs = [store.log for store in stores.values()]
    topics = [rig.topic(stores["one"], f"t{number}") for number in range(2)]
    keys = [f"p{number}" for number in range(4)]
    places = {key: chance.choice(names) for key in keys}
    numbers = {key: rig.enrol(stores[places[key]], key, 50 + place) for place, key in enumerate(keys)}
    stamps = dict.fromkeys(keys, 0)
    expected: dict[tuple[int, int], list[int]] = defaultdict(list)
    for _ in range(150):
        move = chance.random()
        if move < 0.25:
            key = chance.choice(keys)
            places[key] = chance.choice(names)
            assert rig.enrol(stores[places[key]], key) == numbers[key]
        elif move < 0.28:
            name = chance.choice(names)
            stores[name].close()
            stores[name] = rig.open(name)
            for key in keys:
                if places[key] == name:
                    rig.enrol(stores[name], key)
        elif move < 0.31:
            rig.maintain(stores[chance.choice(names)])
        else:
            name = chance.choice(names)
            operations = []
            for key in keys:
                if places[key] == name and chance.random() < 0.7:
                    topic = chance.choice(topics)
                    given = range(stamps[key] + 1, stamps[key] + 1 + chance.randint(1, 3))
                    stamps[key] = given[-1]
                    operations.append(Append(numbers[key], (Part(topic, rows(numbers[key], given)),)))
                    expected[topic, numbers[key]] += given
            if operations:
                rig.write(stores[name], *operations)
    for name in names:
        rig.maintain(stores[name])
    for topic in topics:
        for _ in range(5):
            found: dict[int, list[int]] = defaultdict(list)
            for publisher, stamp in read_all(stores["one"], topic, logs, chance):
                found[publisher].append(stamp)
            assert {(topic, publisher): given for publisher, given in found.items()} == {
                place: given for place, given in expected.items() if place[0] == topic
            }
