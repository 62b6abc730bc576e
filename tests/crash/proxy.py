"""A small TCP proxy on loopback that stands between a client and PostgreSQL and can cut the line."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Proxy:
    """Forwards to a Unix socket.

    Attributes:
        port: Where it listens.
        before: Called with what a client sends, before it goes on; True cuts the connection instead.
        after: Called with what a client sent, after it went on; True cuts before an answer comes back.
        closed: While True every new connection is refused.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.before: Callable[[bytes], bool] = lambda _: False
        self.after: Callable[[bytes], bool] = lambda _: False
        self.closed = False
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        self.closed = True
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.closed:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                silent = threading.Event()
                threading.Thread(target=self._answers, args=(server, client, silent), daemon=True).start()
                threading.Thread(target=self._questions, args=(client, server, silent), daemon=True).start()

    def _questions(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self.before(data):
                    self.cuts += 1
                    break
                cut = self.after(data)
                if cut:
                    # No answer may slip through once the question has gone on.
                    silent.set()
                server.sendall(data)
                if cut:
                    self.cuts += 1
                    break
        _hang_up(client)
        if not silent.is_set():
            _hang_up(server)

    def _answers(self, server: socket.socket, client: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if silent.is_set():
                    # The server has done what it was asked; only the client never hears of it.
                    break
                client.sendall(data)
        _hang_up(client)
        _hang_up(server)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
