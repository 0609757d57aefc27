"""`milepost up`: run a broker until it is stopped."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from milepost.cli.session import DEFAULT_BROKER
from milepost.cli.terminal import Console, echo, logged
from milepost.errors import ConfigError, ConnectionLost, MissingPackage
from milepost.extras import extra, install, installed
from milepost.kernels.compiler import freeze_what_is_loaded

if TYPE_CHECKING:
    from milepost.broker import Broker
    from milepost.broker.metrics import Served
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

    console = Console(stderr=True)
    if store and os.environ.get("MILEPOST_STORE") != store and _has_password(store):
        _warn(
            console, "the password in --store is visible to everybody who lists processes: set MILEPOST_STORE instead"
        )
    _raise_descriptors()
    with logged(""), asyncio.Runner(loop_factory=_loop_factory(console)) as runner:
        runner.run(_serve(chosen, console, RequestedExtras(http is not None, zmq is not None or zmq_curve is not None)))


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


async def _serve(settings: Settings, console: Console, asked: RequestedExtras) -> None:
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
    metrics = None
    try:
        metrics = _start_metrics(broker, settings, console, asked.http)
        async with _zeromq(broker, settings, console, asked.zmq) as zeromq:
            _say_where(broker, settings, metrics.url if metrics is not None else "", zeromq, console)
            _compile_kernels(broker)
            await broker.serve()
    finally:
        if metrics is not None:
            metrics.stop()
        await broker.stop()
    if broker.failure is not None:
        raise broker.failure


def _compile_kernels(broker: Broker) -> None:
    """Compile the matching kernels while the broker serves, and say so. Nothing when they are compiled."""
    from milepost import kernels

    def came() -> None:
        if took := broker.kernels.took:
            again = (
                "later starts find them"
                if kernels.kept()
                else f"{kernels.home()} cannot be written, so every start does"
            )
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


def _start_metrics(broker: Broker, settings: Settings, console: Console, asked: bool) -> Served | None:
    """Metrics are an extra: without them the broker still runs, unless they were requested explicitly."""
    if not settings.http:
        return None
    problem: ConfigError
    try:
        with extra("metrics need", "server"):
            from milepost.broker.metrics import start_metrics
        return start_metrics(broker, asyncio.get_running_loop(), settings.http)
    except MissingPackage as error:
        problem = error
    except OSError as error:
        problem = _cannot_listen(settings.http, error, "--http")
    if asked:
        raise problem
    _warn(console, f'no metrics: {problem}; --http "" does without them')
    return None


@asynccontextmanager
async def _zeromq(broker: Broker, settings: Settings, console: Console, asked: bool) -> AsyncIterator[str]:
    """The ZeroMQ gateway, and its address. It is an extra, like metrics; but its protection is never left out.

    It serves durable topics, so a broker without a store has none.
    """
    if not settings.zmq or (not settings.store and not asked):
        yield ""
        return
    problem: ConfigError | None = None
    if not settings.store:
        problem = ConfigError("the port for ZeroMQ serves durable topics, and this broker keeps nothing: give --store")
    else:
        try:
            from milepost.gateway.zmq import Gateway
        except MissingPackage as error:
            problem = error
    if problem is None:
        address, name = str(_reachable(broker.address)), f"zeromq.{settings.name}"
        gateway = Gateway(address, settings.zmq, curve=settings.zmq_curve, name=name)
        try:
            await gateway.__aenter__()
        except ConnectionLost:  # an OSError too, but not about the port
            raise
        except OSError as error:
            problem = _cannot_listen(settings.zmq, error, "--zmq")
        else:
            try:
                yield gateway.address
            finally:
                await gateway.__aexit__(None, None, None)
            return
    if asked:
        raise problem
    _warn(console, f'no ZeroMQ: {problem}; --zmq "" does without it')
    yield ""


def _say_where(broker: Broker, settings: Settings, metrics: str, zeromq: str, console: Console) -> None:
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
        _warn(console, f"everybody who can reach {address} may use this broker: there is no authentication yet")
    if (
        zeromq
        and not settings.zmq_curve
        and not _loopback(zeromq.removeprefix("tcp://").rpartition(":")[0].strip("[]"))
    ):
        _warn(
            console, f"everybody who can reach {zeromq} may use this broker; --zmq-curve FILE admits those with its key"
        )


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


def _loop_factory(console: Console) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not installed("uvloop"):
        _warn(console, f"slower without uvloop, which is not installed: {install('server')}")
        return None
    import uvloop

    factory: Any = uvloop.new_event_loop
    return factory  # type: ignore[no-any-return]


def _warn(console: Console, sentence: str) -> None:
    console.print(f"milepost: {sentence}", style="yellow", markup=False, highlight=False, emoji=False, soft_wrap=True)
