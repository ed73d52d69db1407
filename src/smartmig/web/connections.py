"""Who may stay connected, and for how long: whoever reaches the port, token or not, leaves descriptors for the rest."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from smartmig.errors import InputError

REQUEST_S = 20.0
"""From the first byte that could come to the last of the request, body and all."""

SEND_S = 60.0
"""For what is left of an answer when a connection ends."""

MOST_CONNECTIONS = 1000
"""At once, and never more than half of the descriptors this process may open."""


def most_connections() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if most == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, most // 2)


class Impatient(H11Protocol):
    """uvicorn's connection, which waits for ever for a first request, and for one that comes byte by byte."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()
        self._send_and_end()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._send_and_end()

    def _send_and_end(self) -> None:
        if self.transport.is_closing() and self.transport.get_write_buffer_size() > 0:
            self.loop.call_later(SEND_S, self.transport.abort)  # closing waits for whoever does not read

    def _watch(self) -> None:
        """The clock runs while a request is awaited, and stands still while it is answered."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(REQUEST_S, self._give_up)

    def _give_up(self) -> None:
        if not self.transport.is_closing():  # or it is sending the end of an answer, which may take longer
            self.transport.abort()

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


@contextmanager
def listening(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Sockets on all addresses of the host, on the same port. Raises `InputError` when there is none to be had."""
    with ExitStack() as opened:
        made: list[socket.socket] = []
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, address in dict.fromkeys(found):
                at: tuple[Any, ...] = (address[0], port, *address[2:])
                try:
                    made.append(opened.enter_context(socket.create_server(at, family=family)))
                except OSError as error:
                    # A name may have an address of a kind that this machine does not use.
                    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                else:
                    port = made[-1].getsockname()[1]
            if not made:
                raise OSError(errno.EADDRNOTAVAIL, "no address")
        except OSError:
            raise InputError(
                f"--host, --port: cannot listen on {host}:{port}; is it in use, or of another machine?"
            ) from None
        yield made
