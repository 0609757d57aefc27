"""`milepost up`: run a broker until it is stopped."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from milepost.cli.session import DEFAULT_BROKER
from milepost.cli.terminal import echo, logged, warn
from milepost.errors import ConfigError, ConnectionLost, MissingPackage
from milepost.extras import extra, install, installed
from milepost.kernels.compiler import freeze_what_is_loaded

if TYPE_CHECKING:
    from milepost.broker import Broker
    from milepost.config import Settings
    from milepost.transport import Address

GC_OBJECTS = 50_000  # allocations between two collections
EXAMPLES = """Examples:
  milepost up
  milepost up --listen 0.0.0.0:7450 --http ""
  milepost up --store /var/lib/milepost/milepost.db
  milepost up --store postgresql://milepost@db.example/milepost --name north
"""


class RequestedExtras(NamedTuple):
    """Extras that were requested explicitly. A broker can start without the others."""

    http: bool
    zmq: bool


def run(
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="where to accept connections; port 0 finds a free one")
    ] = None,
    name: Annotated[str | None, typer.Option(help="the name of the broker")] = None,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="settings, in TOML")
    ] = None,
    cut_through: Annotated[
        bool | None,
        typer.Option("--cut-through/--no-cut-through", help="write directly after matching, while nothing is queued"),
    ] = None,
    input_queues: Annotated[
        int | None, typer.Option(metavar="N", help="threads that check and match; 0: in the event loop")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help='Prometheus metrics, at /metrics; "" for none')
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="MILEPOST_STORE",
            metavar="PATH_OR_URL",
            help='where topics and queues are stored: a file, or postgresql://user@host/database; "" stores nothing',
        ),
    ] = None,
    zmq: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help='the port for ZeroMQ\'s REQ sockets; "" for none')
    ] = None,
    zmq_curve: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="a CURVE certificate with its secret key, which encrypts ZeroMQ"),
    ] = None,
) -> None:
    """Start a broker. It runs until Ctrl-C or SIGTERM.

    Without options it accepts connections from this machine only, at port 7450,
    and stores durable topics and queues in a file in your data folder. Options
    that are not given here come from the settings file, and then from the
    defaults.
    """
    from milepost.config import settings

    chosen = settings(
        config,
        listen=listen,
        name=name,
        cut_through=cut_through,
        input_queues=input_queues,
        http=http,
        store=store,
        zmq=zmq,
        zmq_curve=zmq_curve,
    )
    import milepost.broker  # noqa: F401, which says what is not installed before anything else happens

    if store and os.environ.get("MILEPOST_STORE") != store and _has_password(store):
        warn("milepost: the password in --store is visible to all who list processes: set MILEPOST_STORE instead")
    _raise_descriptors()
    with logged(""), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(chosen, RequestedExtras(http is not None, zmq is not None or zmq_curve is not None)))


def _has_password(store: str) -> bool:
    from milepost.storage.url import parsed, url_of

    url = parsed(url_of(store))
    return url.password is not None or any("password" in name for name in url.query)


def _raise_descriptors() -> None:
    """Raise the limit of file descriptors to the system's maximum: the soft limit is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(settings: Settings, asked: RequestedExtras) -> None:
    from milepost.broker import Broker

    broker = Broker(settings)
    # Freeze what is loaded now, so that no collection scans it again. The objects of a message are freed with it, so
    # collections find little and may be rare.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_OBJECTS)
    freeze_what_is_loaded()
    _stop_on_signals(broker)  # before the address is printed, since a user may stop it at once
    try:
        await broker.start()
    except OSError as error:
        raise _cannot_listen(settings.listen, error, "--listen") from None
    async with AsyncExitStack() as ends:
        ends.push_async_callback(broker.stop)
        metrics, zeromq = await _start_extras(broker, settings, asked, ends)
        _say_where(broker, settings, metrics, zeromq)
        _compile_kernels(broker)
        await broker.serve()
    if broker.failure is not None:
        raise broker.failure


def _compile_kernels(broker: Broker) -> None:
    """Compile the matching kernels while the broker serves, and say so. Nothing when they are compiled."""
    from milepost import kernels

    def came() -> None:
        if took := broker.kernels.took:
            every = f"{kernels.home()} cannot be written, so every start compiles them"
            again = "later starts find them" if kernels.kept() else every
            echo(f"milepost: the matching kernels are compiled ({took:.0f} s); {again}.", err=True)

    broker.on_kernels.append(came)
    broker.kernels.begin()
    if broker.kernels.state == "compiling":
        echo(
            "milepost: the matching kernels are being compiled, once for this version, which takes up to a minute; "
            "until then matching is slower.",
            err=True,
        )


def _stop_on_signals(broker: Broker) -> None:
    """The first signal stops the broker in order. A second one ends the process, if that takes too long."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        broker.finish()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)


async def _start_extras(
    broker: Broker, settings: Settings, asked: RequestedExtras, ends: AsyncExitStack
) -> tuple[str, str]:
    """Start metrics and the ZeroMQ gateway, which `ends` stops. Returns their addresses, or "" for what does not run.

    The gateway serves durable topics, so a broker without a store has none. Its protection is never left out.
    """
    metrics = zeromq = ""
    if settings.http:
        with _optional("metrics", settings.http, "--http", asked.http):
            with extra("metrics need", "server"):
                from milepost.broker.metrics import start_metrics
            served = start_metrics(broker, asyncio.get_running_loop(), settings.http)
            ends.callback(served.stop)
            metrics = served.url
    if settings.zmq and asked.zmq and not settings.store:
        raise ConfigError("the port for ZeroMQ serves durable topics, and this broker keeps nothing: give --store")
    if settings.zmq and settings.store:
        with _optional("ZeroMQ", settings.zmq, "--zmq", asked.zmq):
            from milepost.gateway.zmq import Gateway

            address, name = str(_reachable(broker.address)), f"zeromq.{settings.name}"
            gateway = Gateway(address, settings.zmq, curve=settings.zmq_curve, name=name)
            zeromq = (await ends.enter_async_context(gateway)).address
    return metrics, zeromq


@contextmanager
def _optional(name: str, where: str, option: str, asked: bool) -> Iterator[None]:
    """Start something that a broker can do without: an error is only a warning, unless the option was given."""
    problem: ConfigError
    try:
        yield
        return
    except ConnectionLost:  # an OSError too, but not about the port
        raise
    except MissingPackage as error:
        problem = error
    except OSError as error:
        problem = _cannot_listen(where, error, option)
    if asked:
        raise problem
    warn(f'milepost: no {name}: {problem}; {option} "" turns this off')


def _say_where(broker: Broker, settings: Settings, metrics: str, zeromq: str) -> None:
    """Five lines: where it listens, where it stores what, and three commands to paste into another terminal."""
    address = broker.address
    elsewhere = "" if str(address) == DEFAULT_BROKER else f" --broker {_reachable(address)}"
    also = f", metrics at {metrics}" if metrics else ""
    also += f", ZeroMQ at {zeromq}" if zeromq else ""
    echo(f"milepost {version('milepost')} listens on {address}{also}; Ctrl-C stops it.")
    echo(f"{_what_is_kept(settings)} In another terminal, try:")
    echo(f"  milepost topic create quotes 'quote: [symbol: string, price: double, size: int]'{elsewhere}")
    echo(f"  milepost sub quotes --where \"symbol = 'IBM' and price > 100\"{elsewhere}")
    echo(f"  milepost put quotes symbol=IBM price=101.5 size=200{elsewhere}", flush=True)
    if not _loopback(address.host):
        warn(f"milepost: everybody who can reach {address} may use this broker: there is no authentication yet")
    host = zeromq.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if host and not settings.zmq_curve and not _loopback(host):
        warn(f"milepost: everybody who can reach {zeromq} may use this broker; --zmq-curve FILE requires a key")


def _what_is_kept(settings: Settings) -> str:
    if not settings.store:
        return "It keeps nothing: there are no durable topics, and live ones are gone when it stops."
    from milepost.storage.url import parsed, shown, url_of

    url = parsed(url_of(settings.store))
    if url.drivername.startswith("sqlite"):
        return f"Durable topics and queues are kept in {url.database}."
    return f"Durable topics and queues are kept in {shown(url)}, in the log of {settings.name!r}."


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _reachable(address: Address) -> Address:
    """An address to connect to: "all interfaces" is not one."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    return address._replace(host=everywhere.get(address.host, address.host))


def _cannot_listen(where: str, error: OSError, option: str) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"{where} is taken, perhaps by another broker: stop that one, or choose another port with "
            f"{option} HOST:PORT (port 0 finds a free one)"
        )
    return ConfigError(f"cannot listen on {where}: {error.strerror or error}; choose another with {option} HOST:PORT")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not installed("uvloop"):
        warn(f"milepost: slower without uvloop, which is not installed: {install('server')}")
        return None
    import uvloop

    factory: Any = uvloop.new_event_loop
    return factory  # type: ignore[no-any-return]
