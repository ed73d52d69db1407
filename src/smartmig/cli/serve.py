"""`smartmig serve`: the controller, with its API."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import signal
import socket
import sys
import threading
from dataclasses import asdict
from typing import Annotated, Any

import typer

from smartmig import __version__
from smartmig.cli.live_places import JournalPlace, KillFile, home, journal_place, kill_place, needs
from smartmig.cli.live_policy import (
    FALLBACK,
    Allocation,
    BackfillKind,
    Placement,
    PolicyNames,
    Repartition,
    Seed,
    Selection,
    worlds_of,
)
from smartmig.cli.options import rule_spec
from smartmig.cli.policy_files import digests, trained_ranges
from smartmig.errors import InputError
from smartmig.ports import Connection
from smartmig.scenario import adapter as adapter_knobs
from smartmig.sim.gang.world import Backfill

AdapterName = Annotated[str, typer.Option(help="Cluster: simulated, slurm; knobs as simulated:nodes=4x8,speedup=600.")]


def open_adapter(text: str) -> Connection:
    """`id` or `id:knob=value,...` -> an opened cluster."""
    knobs = adapter_knobs(_without_nulls(rule_spec(text, "--adapter")), "--adapter")
    connection: Connection = knobs.open()
    return connection


def _without_nulls(spec: Any) -> Any:
    """`gpus=` means no GPUs; YAML reads nothing as null."""
    return spec if isinstance(spec, str) else {knob: "" if v is None else v for knob, v in spec.items()}


def serve(
    adapter: AdapterName = "simulated",
    mode: Annotated[str, typer.Option(help="observe, shadow or act.")] = "shadow",
    selection: Selection = "fcfs",
    allocation: Allocation = "best-fit",
    backfill: BackfillKind = Backfill.easy,
    placement: Placement = "shortest-work",
    repartition: Repartition = "static",
    journal: JournalPlace = "",
    kill_file: KillFile = "",
    host: Annotated[
        str, typer.Option(help="Address of the API; others than loopback reach the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the API; 0: any free one.")] = 8750,
    api: Annotated[bool, typer.Option("--api/--no-api", help="Serve the API.")] = True,
    period: Annotated[float, typer.Option(min=0.01, help="Seconds between two looks when nothing happens.")] = 10.0,
    max_wait: Annotated[float, typer.Option(min=1, help="Guard: seconds after which a waiting job goes first.")] = 7
    * 86_400.0,
    drift_margin: Annotated[
        float, typer.Option(help="Guard: how far beyond its training a learned policy may see, in ranges.")
    ] = 0.5,
    seed: Seed = 0,
    turns: Annotated[int, typer.Option(min=0, help="Stop after so many turns of the loop; 0: never.")] = 0,
) -> None:
    """Run the controller: watch a cluster, decide, and in mode act carry it out. Logs JSON lines to stderr."""
    needs("smartmig serve", "sqlalchemy", "alembic", *(("fastapi", "uvicorn", "prometheus_client") if api else ()))
    from smartmig.control.guard import HOUR_S, GuardRules
    from smartmig.control.history import is_simulated, simulated_sessions
    from smartmig.control.journal import Journal
    from smartmig.control.logs import JsonLog
    from smartmig.control.loop import Loop, LoopSettings
    from smartmig.control.pilot import Pilot
    from smartmig.control.replay import handed_over_since
    from smartmig.control.switch import Mode, is_thrown
    from smartmig.control.wire import memory_from_json, rules_to_json

    if mode not in [one.value for one in Mode]:
        raise InputError(f"--mode: got '{mode}', allowed are {', '.join(Mode)}")
    names = PolicyNames.parse(selection, allocation, backfill, placement, repartition)
    rules = GuardRules(max_wait_s=max_wait, drift_margin=drift_margin)
    switch = kill_place(kill_file)
    is_thrown(switch)  # refused now, if it is no place for a file
    if api:
        _check_host(host)
    connection = open_adapter(adapter)
    settings = LoopSettings(mode=Mode(mode), period_s=period)
    first = connection.source.observe(settings.observe_timeout_s)
    worlds = worlds_of(first)
    policy, fallback = names.policy(worlds), FALLBACK.policy(worlds)
    ranges = trained_ranges(policy)
    book = Journal(journal_place(journal))
    record = JsonLog(_standard_error())
    logging.getLogger().addHandler(record)
    logging.captureWarnings(True)
    try:
        pilot = Pilot(policy, fallback, rules, seed, ranges=ranges)
        if not is_simulated(adapter):  # one begins anew every time, and so does what is remembered of it
            apart = simulated_sessions(book.reader)
            memories = book.reader.records(kinds=("memory",), newest=True)
            kept = next((one for one in memories if one.session not in apart), None)
            pilot.memory = pilot.memory if kept is None else memory_from_json(kept.body)
            pilot.guard_memory = handed_over_since(book.reader, first.time_s - HOUR_S, apart)
        about: dict[str, Any] = {
            "version": __version__,
            "adapter": adapter,
            "mode": mode,
            "policy": asdict(names),
            "fallback": asdict(FALLBACK),
            "policy_files": digests(policy),
            "worlds": list(worlds),
            "seed": seed,
            "guard": rules_to_json(rules),
        }
        loop = Loop(connection, pilot, book, settings, about, switch)
        pilot.warm_up(first)
        _be_prompt()
        loop.listener = record.hear
        record.say("info", "ready", adapter=adapter, mode=mode, journal=book.engine.url.render_as_string(True))
        if api:
            _serve_api(loop, policy, fallback, seed, host, port, record, turns)
        else:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: loop.stop())
            _turn(loop, turns)
        record.say("info", "stopped", decisions=loop.counts.decisions, starts=loop.counts.starts)
    finally:
        book.close()
        connection.source.close()
        connection.actuator.close()
        logging.getLogger().removeHandler(record)
        logging.captureWarnings(False)
        record.end()


def _standard_error() -> io.FileIO:
    """Past Python's own buffer: the program ends though somebody waits for room in it."""
    return io.FileIO(os.devnull, "w") if sys.stderr is None else io.FileIO(2, "w", closefd=False)


def _check_host(host: str) -> None:
    """Raises `InputError` for what is no address; uvicorn would take an empty one for all addresses."""
    try:
        known = bool(host) and socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        known = False
    if not known:
        raise InputError(f"--host: no address '{host[:100]}'; allowed are names and addresses of this machine")


def _turn(loop: Any, turns: int) -> None:
    if turns == 0:
        loop.run()
        return
    stop_at = loop.counts.observations + turns
    hear = loop.listener

    def count(event: str, body: dict[str, Any]) -> None:
        hear(event, body)
        if loop.counts.observations >= stop_at:
            loop.stop()

    loop.listener = count
    loop.run()


def _be_prompt() -> None:
    """Threads that write and talk must not keep the deciding one waiting: by default each may for 5 ms on end, and a
    full collection of everything imported takes longer than a decision."""
    sys.setswitchinterval(2e-4)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _serve_api(loop: Any, policy: Any, fallback: Any, seed: int, host: str, port: int, record: Any, turns: int) -> None:
    from smartmig.web.connections import listening

    # Before the cluster is taken over: who cannot be asked must not be in charge, not even for a moment.
    with listening(host, port) as sockets:
        _serve_on(sockets, loop, policy, fallback, seed, host, record, turns)


def _serve_on(
    sockets: list[socket.socket], loop: Any, policy: Any, fallback: Any, seed: int, host: str, record: Any, turns: int
) -> None:
    import uvicorn

    from smartmig.control.tokens import Role, add_token, list_tokens
    from smartmig.web.app import Server, create_app
    from smartmig.web.connections import Impatient
    from smartmig.web.playground.runs import Playground

    engine = loop.journal.engine
    if not list_tokens(engine):
        record.say("info", "first token, shown once", token=add_token(engine, "admin", Role.operator))
    if host not in ("127.0.0.1", "::1", "localhost"):
        record.say("warning", "the API listens beyond this machine; put TLS in front of it", host=host)
    web = Server(loop, policy, fallback, seed)

    def hear(event: str, body: dict[str, Any]) -> None:
        record.hear(event, body)
        web.hear(event, body)

    loop.listener = hear
    server: uvicorn.Server
    playground = Playground(home() / "playground", web.hub.tell)
    app = create_app(web, playground, ends=lambda: server.should_exit)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=Impatient,
            ws="none",
            backlog=32,  # so many are taken in at once, before any can be turned away
            log_config=None,
            log_level="warning",
            access_log=False,
            # Who tries tokens out is slowed down by address: one that a header claims is no address.
            proxy_headers=False,
            # One request that cannot finish must not keep the process, and with it the cluster.
            timeout_graceful_shutdown=5,
        )
    )
    failed: list[BaseException] = []

    def turn() -> None:
        try:
            _turn(loop, turns)
        except BaseException as error:
            failed.append(error)
            raise
        finally:
            server.should_exit = True

    def end(*_: Any) -> None:
        server.should_exit = True
        loop.stop()

    # uvicorn's own handlers end the process with the signal, before the loop has let go.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    thread = threading.Thread(target=turn, name="loop")
    thread.start()
    try:
        _listen(server, sockets, host, record)
    finally:
        loop.stop()
        playground.close()
        thread.join()
    if failed:
        raise failed[0]


def _listen(server: Any, sockets: list[socket.socket], host: str, record: Any) -> None:
    """Run the server; say where it listens as soon as it does."""
    port = sockets[0].getsockname()[1]

    def tell() -> None:
        import time

        while not server.started and not server.should_exit:
            time.sleep(0.02)
        if server.started:
            record.say("info", "listening", url=f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    threading.Thread(target=tell, daemon=True).start()
    server.run(sockets)
