"""docs/limits.md names every limit with the value that it has."""

import re
import tomllib
from pathlib import Path

from milepost import limits
from milepost.gateway.zmq import bodies, gateway, publishers, roster, rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "limits.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| ([\d,]+) \| ([\w ]*) \| (.+) \|$", re.MULTILINE)
NOT_BOUNDS = {"name", "listen", "http", "zmq", "zmq_curve", "store", "cut_through", "input_queues"}
GATEWAY = {
    bodies: ["BODY_BYTES"],
    gateway: ["REQUESTS", "POLLS"],
    publishers: ["PUBLISHERS", "PUBLISHER_TOPICS"],
    roster: ["KNOWN", "ATTACHED", "QUEUED"],
    rows: ["DYNAMIC_CHARS"],
}


def test_the_page_has_every_limit_and_its_value():
    settings = tomllib.loads((ROOT / "src" / "milepost" / "defaults.toml").read_text())["broker"]
    wanted = {name: value for name, value in settings.items() if name not in NOT_BOUNDS}
    wanted |= {name: value for name, value in vars(limits).items() if name.isupper()}
    wanted |= {name: getattr(module, name) for module, names in GATEWAY.items() for name in names}
    told = {name: int(value.replace(",", "")) for name, value, _, _ in ROW.findall(PAGE)}
    assert told == wanted
    assert PAGE.count("\n| `") == len(told)  # none twice, and none in another form


def test_the_page_names_what_has_no_limit():
    assert "frames of a message over ZeroMQ, for which libzmq has no bound" in " ".join(PAGE.split())
