"""Real sockets on a server of its own: who is waited for, and who is not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from smartmig.errors import InputError
from smartmig.web import connections
from smartmig.web.connections import Impatient, listening

PATIENCE_S = 0.5
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"

Connect = Callable[[], socket.socket]


async def large(scope: Any, receive: Any, send: Any) -> None:
    """More than any buffer on the way holds."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(20_000_000)})


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """Reads what it is sent, and answers for longer than a request is waited for."""
    assert scope["type"] == "http"
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.disconnect":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    await asyncio.sleep(3 * PATIENCE_S)
    await send({"type": "http.response.body", "body": b"ended"})


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Connect]:
    monkeypatch.setattr(connections, "REQUEST_S", PATIENCE_S)
    made: list[socket.socket] = []
    app = getattr(request, "param", slow)
    keep_alive_s = 60 if app is slow else 0
    with listening("127.0.0.1", 0) as sockets:
        address = sockets[0].getsockname()
        # As in `serve`: no loggers of uvicorn's own making, which would stay for other tests.
        quiet = uvicorn.Config(
            app, http=Impatient, lifespan="off", timeout_keep_alive=keep_alive_s, log_config=None, access_log=False
        )
        server = uvicorn.Server(quiet)
        thread = threading.Thread(target=server.run, args=(sockets,))
        thread.start()

        def one() -> socket.socket:
            made.append(socket.create_connection(address, 30))
            return made[-1]

        yield one
        for each in made:
            each.close()
        server.should_exit = True
        thread.join()


def heard(one: socket.socket) -> bytes:
    """All there is until the end."""
    said = b""
    try:
        while part := one.recv(4096):
            said += part
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize("said", [b"", b"GET / HT", POST, POST + b"x"])
def test_connection__that_brings_no_whole_request_ends(connect: Connect, said: bytes) -> None:
    one = connect()
    one.sendall(said)
    assert heard(one) == b""


def test_connection__that_trickles_ends_as_well(connect: Connect) -> None:
    one = connect()
    began_s = time.monotonic()
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            one.sendall(b"G")
            time.sleep(PATIENCE_S / 10)
    assert time.monotonic() - began_s < 5 * PATIENCE_S


def test_connection__is_not_cut_off_while_it_is_answered_and_ends_when_nothing_follows(connect: Connect) -> None:
    one = connect()
    one.sendall(POST + b"xx" + GET)
    assert heard(one).count(b"ended") == 2


@pytest.mark.parametrize("connect", [large], indirect=True)
def test_connection__that_reads_no_answer_ends(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SEND_S", PATIENCE_S)
    one = connect()
    one.sendall(GET.replace(b"Host", b"Connection: close\r\nHost"))
    time.sleep(6 * PATIENCE_S)
    assert len(heard(one)) < 20_000_000


@pytest.mark.parametrize("connect", [large], indirect=True)
def test_connection__that_reads_slowly_gets_all_of_its_answer(connect: Connect) -> None:
    one = connect()
    one.sendall(GET)
    time.sleep(4 * PATIENCE_S)
    assert len(heard(one)) > 20_000_000


def test_connections__beyond_the_most_are_turned_away(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(connections, "REQUEST_S", 60.0)
    many = [connect() for _ in range(5)]
    assert [heard(one) for one in many[3:]] == [b"", b""]
    many[0].sendall(GET)
    assert many[0].recv(4096).startswith(b"HTTP/1.1 200")


def test_listening__a_port_in_use_is_refused_and_all_addresses_share_one() -> None:
    with listening("localhost", 0) as sockets:
        assert len({one.getsockname()[1] for one in sockets}) == 1
        port = sockets[0].getsockname()[1]
        with (
            pytest.raises(InputError, match=f"cannot listen on localhost:{port}; is it in use"),
            listening("localhost", port),
        ):
            pass
