"""Serve a WSGI application (PEP 3333) on a listening Unix socket.

All threads wait on one poll object: whichever is idle takes the next readable connection and serves its
request to the end, so no request is handed from thread to thread. Sockets are blocking, since a thread
has nothing else to do while it serves; only the first read of a request doesn't wait.
"""

import io
import os
import signal
import socket
import stat
import sys
import threading
from time import monotonic
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from . import _http, _peers, _poll
from ._http import ChunkedBody, FieldBlock, InvalidResponse, LengthBody, MalformedRequest

Environ = Dict[str, Any]
Prepared = Tuple[FieldBlock, Environ, Environ]
"""The fields of a request, what its request line says, and the environ of both."""
Report = Callable[[str, str, str, BaseException], str]
"""Tell Larder of an exception: request name, method, target. Returns the traceback."""

_RECEIVE_BYTES = 16 * 1024
_BODY_BYTES = 64 * 1024
# A chunk larger than this is sent beside its head instead of being copied behind it.
_COPY_BYTES_MAX = 32 * 1024
_DISCARD_SECONDS = 1.0
_EVENTS_MAX = 64
_PREPARED_MAX = 512
# A request seen longer ago than this may have been taken back: Larder does that where other requests take too long.
_LOOK_SECONDS = 0.001
_NEVER = float("-inf")
_DONTWAIT = socket.MSG_DONTWAIT


class ClientGone(ConnectionError):
    """The client left while its response was written or its body read. Not an error of the application."""


class BodyTooLong(OSError):
    """The request body is longer than the configured limit."""


class Connection:
    """A connection of Larder: one request at a time."""

    __slots__ = ("fd", "out_of_line", "partial", "receive", "send", "socket")

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.fd = sock.fileno()
        # Bound once: an attribute look-up on each request is what this saves.
        self.receive = sock.recv
        self.send = sock.sendall
        self.partial = bytearray()
        """The beginning of a head that is not complete yet."""
        self.out_of_line = False
        """Whether bytes were read otherwise than when the poll object reported them."""

    def peer_left(self) -> bool:
        try:
            return not self.receive(1, socket.MSG_PEEK | _DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


class Input:
    """`wsgi.input`: the request body (PEP 3333, "Input and Error Streams")."""

    __slots__ = ("_body", "_buffer", "_connection", "_expects_continue", "_limit", "_received")

    def __init__(
        self, connection: Connection, length: int, expects_continue: bool, received: bytes, limit: Optional[int]
    ) -> None:
        self._connection = connection
        self._body: Union[LengthBody, ChunkedBody] = ChunkedBody() if length == _http.CHUNKED else LengthBody(length)
        self._expects_continue = expects_continue
        self._limit = limit
        self._received = 0
        self._buffer = self._decode(received) if received else b""

    def read(self, size: Optional[int] = -1) -> bytes:
        """Read `size` bytes, fewer only at the end of the body."""
        if size is None or size < 0:
            size = sys.maxsize
        if size == 0:
            return b""
        pieces: List[bytes] = []
        while size > 0:
            piece = self._piece()
            if not piece:
                break
            if len(piece) > size:
                self._buffer = piece[size:]
                piece = piece[:size]
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readline(self, size: Optional[int] = -1) -> bytes:
        if size is None or size < 0:
            size = sys.maxsize
        if size == 0:
            return b""
        pieces: List[bytes] = []
        while size > 0:
            piece = self._piece()
            if not piece:
                break
            end = piece.find(b"\n", 0, size) + 1
            cut = end or min(size, len(piece))
            self._buffer = piece[cut:]
            pieces.append(piece[:cut])
            size -= cut
            if end:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readlines(self, hint: Optional[int] = -1) -> List[bytes]:
        lines: List[bytes] = []
        total = 0
        for line in self:
            lines.append(line)
            total += len(line)
            if hint is not None and 0 < hint <= total:
                break
        return lines

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def _piece(self) -> bytes:
        """Return what is buffered, else the next bytes of the body; nothing at its end."""
        piece = self._buffer
        if piece:
            self._buffer = b""
            return piece
        while not piece and not self._body.done:
            if self._expects_continue:
                self._expects_continue = False
                self._connection.send(_http.CONTINUE)
            data = self._connection.receive(_BODY_BYTES)
            if not data:
                raise ClientGone("the client left in the middle of its request body")
            piece = self._decode(data)
        return piece

    def _decode(self, data: bytes) -> bytes:
        piece = self._body.feed(data)
        self._received += len(piece)
        if self._limit is not None and self._received > self._limit:
            raise BodyTooLong(f"the request body is longer than {self._limit} bytes")
        return piece

    def has_more(self) -> bool:
        """Say whether bytes of the body are still to be received."""
        return not self._body.done

    def spoils_connection(self) -> bool:
        """Say whether the rest of the body is too much to be read away.

        A client that still waits for 100 Continue may send the body or not (RFC 9110, 10.1.1), so that the
        connection can't be used again either.
        """
        return self._expects_continue or (not self._body.done and self._body.remaining > _http.DISCARD_BYTES_MAX)

    def discard(self) -> Optional[bytes]:
        """Read the rest of the body away. Return the bytes behind it, or nothing if the connection has to be closed."""
        if self.spoils_connection():
            return None
        left = _http.DISCARD_BYTES_MAX
        while not self._body.done:
            readable = left > 0 and _poll.wait_readable(self._connection.fd, _DISCARD_SECONDS)
            data = self._connection.receive(_BODY_BYTES, _DONTWAIT) if readable else b""
            if not data:
                return None
            left -= len(data)
            self._body.feed(data)
        return self._body.rest


class NoInput(Input):
    """`wsgi.input` of requests without a body. It has no state, so that all of them share one."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def _piece(self) -> bytes:
        return b""

    def spoils_connection(self) -> bool:
        return False


class FileWrapper:
    """`wsgi.file_wrapper` (PEP 3333, "Optional Platform-Specific File Handling")."""

    def __init__(self, filelike: Any, block_size: int = _BODY_BYTES) -> None:
        self.filelike = filelike
        self.block_size = max(block_size, _BODY_BYTES)
        if hasattr(filelike, "close"):
            self.close = filelike.close

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self.filelike.read(self.block_size), b"")

    def sendable(self) -> Optional[Tuple[int, int, int]]:
        """Return descriptor, position and remaining bytes of a regular file.

        Only of Python's own file objects: others (gzip) have the descriptor of a file whose bytes are not theirs.
        """
        file = getattr(self.filelike, "file", self.filelike)
        if type(getattr(file, "raw", file)) is not io.FileIO:
            return None
        try:
            if isinstance(file, io.BufferedRandom):
                file.flush()
            status = os.fstat(file.fileno())
            position = file.tell()
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return file.fileno(), position, max(status.st_size - position, 0)


class Exchange:
    """One request and its response, as `start_response` and `write` of the application see them."""

    __slots__ = (
        "_bodyless", "_chunked", "_closes", "_connection", "_head", "_headers", "_input", "_is_head", "_left", "_whole", "sent",
        "usable",
    )  # fmt: skip

    def __init__(self, connection: Connection, is_head: bool, closes: bool, body: Optional[Input]) -> None:
        self._connection = connection
        self._is_head = is_head
        self._closes = closes
        self._input = body
        self._head: Optional[str] = None
        self._whole = b""
        """The same with the empty line at its end, where it is known."""
        self._headers: List[Tuple[str, str]] = []
        self._left = -1
        """Bytes that are still to come by the Content-Length of the application, or -1."""
        self._chunked = False
        self._bodyless = is_head
        self.sent = False
        """Whether the head is on its way, so that no other can be sent."""
        self.usable = True
        """Whether the response ended properly and the connection can take another request."""

    def start_response(
        self, status: str, headers: List[Tuple[str, str]], exc_info: Optional[Tuple[Any, Any, Any]] = None
    ) -> Callable[[bytes], None]:
        if exc_info:
            try:
                if self.sent:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self._head is not None:
            raise AssertionError("start_response() was called before, and without exc_info (PEP 3333)")
        if status == "200 OK":
            self._head, self._left, self._whole = _http.response_head(status, headers)
            self._bodyless = self._is_head
        else:
            if isinstance(status, str) and status.startswith("204"):
                # RFC 9110, 8.6.
                headers = [field for field in headers if field[0].lower() != "content-length"]
            self._head, self._left, self._whole = _http.response_head(status, headers)
            self._bodyless = self._is_head or not _http.has_body(status)
        self._headers = headers
        return self.write

    def write(self, data: bytes) -> None:
        """Send a piece of the body, with the head before the first one (PEP 3333, "The write() Callable")."""
        if self._head is None and data:
            raise AssertionError("the application gave a part of the body before it called start_response()")
        if type(data) is not bytes:
            if not isinstance(data, bytes):
                raise TypeError(f"the application gave {type(data).__name__} where PEP 3333 wants bytes")
            data = bytes(data)
        if self.sent:
            self._send_piece(data)
        elif data:
            self._send_first(data, None)

    def send_whole(self, data: bytes) -> None:
        """Send a response whose body is `data` alone."""
        if type(data) is bytes and self._left == len(data) <= _COPY_BYTES_MAX and self._input is None and not self._bodyless:
            # What most responses are: of the length that the application has declared.
            self._left = 0
            if self._whole and not self._closes:
                self.sent = True
                self._send(self._whole + data)
            else:
                self._send(self._take_head() + data)
            return
        if self._head is None:
            raise AssertionError("the application did not call start_response()")
        if not isinstance(data, bytes):
            raise TypeError(f"the application gave {type(data).__name__} where PEP 3333 wants bytes")
        self._send_first(data, len(data))

    def finish(self) -> None:
        """End the response after the last piece."""
        if not self.sent:
            self.send_whole(b"")
        elif self._chunked:
            self._send(_http.LAST_CHUNK)
        self._check_end()

    def send_file(self, wrapper: FileWrapper) -> bool:
        """Send a regular file by sendfile(2). Return whether that was possible."""
        if self._head is None or self.sent or self._bodyless:
            return False
        found = wrapper.sendable()
        if not found:
            return False
        fd, position, size = found
        if self._left < 0:
            self._left = size
            self._head += f"\r\nContent-Length: {size}"
        self._send(self._take_head())
        left = min(size, self._left)
        while left:
            try:
                count = os.sendfile(self._connection.fd, fd, position, left)
            except OSError as error:
                raise ClientGone(*error.args) from None
            if not count:
                break
            position += count
            left -= count
            self._left -= count
        self._check_end()
        return True

    def needs_no_more(self) -> bool:
        """Say whether the head was all of the response: the body of an answer to HEAD may have no end."""
        return self.sent and self._bodyless

    def client_left(self) -> bool:
        """Say whether the client closed its side, which after a whole request means that it left."""
        return self._connection.peer_left()

    def _send_first(self, data: bytes, whole: Optional[int]) -> None:
        head = self._head
        if self._bodyless:
            if whole and self._left < 0 and self._is_head:
                self._head += f"\r\nContent-Length: {whole}"  # type: ignore[operator]
            self._left = -1
            self._send(self._take_head())
        elif whole is not None and self._left < 0:
            self._head = f"{head}\r\nContent-Length: {whole}"
            self._send_joined(self._take_head(), data)
        elif self._left >= 0:
            surplus = len(data) > self._left
            if surplus:
                data = data[: self._left]
            self._left -= len(data)
            self._send_joined(self._take_head(), data)
            if surplus:
                raise self._too_long()
            if whole is not None:
                self._check_end()
        else:
            self._chunked = True
            self._head = f"{head}\r\nTransfer-Encoding: chunked"
            self._send_joined(self._take_head(), b"%x\r\n" % len(data), data, b"\r\n")

    def _send_piece(self, data: bytes) -> None:
        if self._bodyless or not data:
            return
        if self._chunked:
            self._send_joined(b"%x\r\n" % len(data), data, b"\r\n")
            return
        surplus = len(data) > self._left
        if surplus:
            data = data[: self._left]
        self._left -= len(data)
        self._send(data)
        if surplus:
            raise self._too_long()

    def _take_head(self) -> bytes:
        if self._closes or (self._input is not None and self._input.spoils_connection()):
            self._head += "\r\nConnection: close"  # type: ignore[operator]
            self.usable = False
        head = _http.encode_head(self._head + "\r\n\r\n", self._headers)  # type: ignore[operator]
        self.sent = True
        return head

    def _too_long(self) -> InvalidResponse:
        self.usable = False
        return InvalidResponse("the body is longer than the Content-Length of the application")

    def _check_end(self) -> None:
        if self._left > 0 and not self._bodyless:
            self.usable = False
            raise InvalidResponse(f"the body is {self._left} bytes shorter than the Content-Length of the application")

    def _send_joined(self, *pieces: bytes) -> None:
        if sum(map(len, pieces)) <= _COPY_BYTES_MAX:
            self._send(b"".join(pieces))
        else:
            for piece in pieces:
                self._send(piece)

    def _send(self, data: bytes) -> None:
        try:
            self._connection.send(data)
        except OSError as error:
            self.usable = False
            raise ClientGone(*error.args) from None


class Server:
    """The connections and threads of a WSGI process."""

    def __init__(
        self,
        application: Callable[..., Iterable[bytes]],
        listener: socket.socket,
        report: Report,
        *,
        threads: int = 1,
        body_bytes_max: Optional[int] = None,
        debug: bool = False,
        larder: Optional[_peers.Server] = None,
    ) -> None:
        self._application = application
        self._listener = listener
        self._larder = larder
        self._report = report
        self._threads = threads
        self._body_bytes_max = body_bytes_max
        self._debug = debug
        self.after_request: Callable[[], None] = _nothing
        """Called behind each request, once its response was sent."""
        self._draining = False
        self._connections: Dict[int, Connection] = {}
        self._blocks = _http.Memo()
        self._lines = _http.Memo()
        self._prepared: Dict[Tuple[bytes, bytes], Prepared] = {}
        self._no_input = NoInput()
        self._poll: Any = _poll.new_poll()
        shared = threads > 1
        # One thread serves in the order in which requests came: Larder knows by it whose turn it is. A connection that was reported
        # is not in the line again before the next bytes come; where events were levels, it would keep the place that it had.
        self._mask = _poll.READABLE | _poll.PEER_CLOSED | (_poll.ONESHOT if shared else _poll.EDGE)
        self._shared = shared
        # A signal is noticed by two ways: the C handler writes to `_signals` at once, whatever Python does;
        # the Python handler, which may have to wait for the main thread, also holds where the application
        # set a wakeup descriptor of its own. Either makes `_drain` readable for good, so that all threads see it.
        self._signals = _pipe()
        self._drain = _pipe()

    def run(self, ready: Callable[[], Any]) -> None:
        """Call `ready`, serve until SIGTERM, and finish what is under way."""
        self._listener.setblocking(False)
        poll = self._poll
        poll.register(self._listener.fileno(), _poll.READABLE | _poll.EXCLUSIVE)
        poll.register(self._signals[0], _poll.READABLE)
        poll.register(self._drain[0], _poll.READABLE)
        signal.signal(signal.SIGTERM, lambda *_: self.begin_drain())
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)
        ready()
        others = [threading.Thread(target=self._serve, name=f"larder-{n}", daemon=True) for n in range(1, self._threads)]
        for thread in others:
            thread.start()
        self._serve()
        for thread in others:
            thread.join()
        for connection in list(self._connections.values()):
            self._close(connection)
        self._listener.close()
        # A second SIGTERM would end the interpreter in the middle of its exit handlers.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def descriptors(self) -> List[int]:
        """Return the descriptors that a forked child must not use."""
        return [self._poll.fileno(), self._listener.fileno(), *self._signals, *self._drain, *self._connections]

    def begin_drain(self) -> None:
        if not self._draining:
            self._draining = True
            os.write(self._drain[1], b"\0")

    def _serve(self) -> None:
        poll = self._poll.poll
        listener = self._listener.fileno()
        signals = self._signals[0]
        drain = self._drain[0]
        connections = self._connections
        read_ready = self._read_ready
        # One event at a time where threads share the work: a second one would wait behind the first.
        batch = 1 if self._shared else _EVENTS_MAX
        while not self._draining:
            events = poll(-1, batch)
            looked = monotonic()
            for fd, event in events:
                connection = connections.get(fd)
                if connection is not None:
                    try:
                        read_ready(connection, event, looked, None)
                    except Exception as error:
                        self._broke(connection, error)
                elif fd == listener:
                    self._accept()
                elif fd == signals:
                    self._read_signals()
                elif fd == drain:
                    self._draining = True
        self._serve_rest()

    def _serve_rest(self) -> None:
        """Serve what was already sent before the drain began."""
        own = (self._listener.fileno(), self._signals[0], self._drain[0])
        while True:
            ready = [pair for pair in self._poll.poll(0, len(self._connections) + 3) if pair[0] not in own]
            looked = monotonic()
            if not ready:
                return
            for fd, event in ready:
                connection = self._connections.get(fd)
                if connection is not None:
                    self._read_guarded(connection, event, looked)

    def _read_signals(self) -> None:
        try:
            numbers = os.read(self._signals[0], 64)
        except BlockingIOError:
            return
        if signal.SIGTERM in numbers:
            self.begin_drain()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # Out of descriptors, most likely: the connection waits in the backlog until others are closed.
            print(f"larder: can't accept a connection: {error}", file=sys.stderr)
            threading.Event().wait(0.05)
            return
        if not _peers.is_of(self._larder, sock):
            sock.close()
            return
        sock.setblocking(True)
        connection = Connection(sock)
        self._connections[connection.fd] = connection
        if self._shared:
            self._poll.register(connection.fd, self._mask)
            return
        # Its request, which came with it most likely, has its turn now, and not behind those that came later.
        data = self._receive(connection)
        self._poll.register(connection.fd, self._mask)
        if data is not None:
            self._read_guarded(connection, 0, _NEVER, data)

    def _close(self, connection: Connection) -> None:
        # Out of the map before the number can be given to another connection.
        if self._connections.pop(connection.fd, None) is not None:
            try:
                self._poll.unregister(connection.fd)
            except (OSError, ValueError, KeyError):
                pass
            connection.socket.close()

    def _read_guarded(self, connection: Connection, event: int, looked: float, data: Optional[bytes] = None) -> None:
        try:
            self._read_ready(connection, event, looked, data)
        except Exception as error:
            self._broke(connection, error)

    def _broke(self, connection: Connection, error: Exception) -> None:
        """Keep the thread alive whatever happens, above all a MemoryError outside of the application."""
        self._close(connection)
        self._report("", "", "", error)

    def _read_ready(self, connection: Connection, event: int, looked: float, data: Optional[bytes]) -> None:
        """Read what a connection has, or `data`, and serve the request if its head is complete."""
        connection.out_of_line = False
        if data is None:
            data = self._receive(connection)
        while data is not None:
            # No event tells of what is there already: more than one read takes, and the end behind the last bytes.
            is_all = len(data) < _RECEIVE_BYTES and not event & _poll.PEER_CLOSED
            if not data or not self._take(connection, data, event, looked):
                self._close(connection)
                return
            if is_all or self._shared:
                break
            connection.out_of_line = True
            data = self._receive(connection)
        if self._shared:
            self._poll.modify(connection.fd, self._mask)
        elif connection.out_of_line:
            # Bytes that came meanwhile have put it into the line, where the next request would have their place.
            self._poll.unregister(connection.fd)
            self._poll.register(connection.fd, self._mask)

    def _receive(self, connection: Connection) -> Optional[bytes]:
        """Return what has come, without waiting: nothing at the end, and `None` where the end is still to come."""
        try:
            return connection.receive(_RECEIVE_BYTES, _DONTWAIT)  # type: ignore[no-any-return]
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _take(self, connection: Connection, data: Optional[bytes], event: int, looked: float) -> bool:
        """Take bytes of requests, and serve those that are complete. Return whether the connection can go on."""
        while data:
            partial = connection.partial
            if partial:
                # Only where the end may be: the beginning was searched before.
                start = max(len(partial) - 3, 0)
                partial += data
                end = partial.find(b"\r\n\r\n", start)
                if end >= 0:
                    data = bytes(partial)
                    partial.clear()
            else:
                end = data.find(b"\r\n\r\n")
                if end < 0:
                    partial += data
            if end > _http.HEAD_BYTES_MAX or len(partial) > _http.HEAD_BYTES_MAX:
                return False
            if end < 0:
                break
            data = self._serve_request(connection, data, end, event, looked)
            self.after_request()
        return data is not None

    def _serve_request(self, connection: Connection, data: bytes, end: int, event: int, looked: float) -> Optional[bytes]:
        """Serve one request. Return what came behind it, or nothing if the connection has to be closed."""
        line, block, name = _http.split_head(data, end)
        try:
            known = self._prepared.get((line, block))
            if known is None:
                fields, target, environ = self._prepare(line, block)
            else:
                fields, target, environ = known
                # A copy costs a fraction of putting it together. The application may change its own as it likes.
                environ = environ.copy()
        except MalformedRequest as error:
            print(f"larder: malformed request: {error}", file=sys.stderr)
            return None
        if name:
            environ["larder.request"] = name
        method = target["REQUEST_METHOD"]
        is_head = method == "HEAD"
        length = fields.body_length
        received = data[end + 4 :] if len(data) > end + 4 else b""
        if not length:
            if received:
                return None
            if (is_head or method == "GET") and (
                event & _poll.PEER_CLOSED or (monotonic() - looked > _LOOK_SECONDS and connection.peer_left())
            ):
                # The client left before its turn. Nobody would see the response, and nothing is lost.
                return None
            exchange = Exchange(connection, is_head, fields.close or self._draining, None)
            body = None
        else:
            limit = self._body_bytes_max
            try:
                if limit is not None and length > limit:
                    raise BodyTooLong
                body = Input(connection, length, fields.expects_continue, received, limit)
            except BodyTooLong:
                self._refuse(connection, "413 Content Too Large", "the request body is too long")
                return None
            except MalformedRequest:
                return None
            connection.out_of_line = connection.out_of_line or body.has_more()
            environ["wsgi.input"] = body
            exchange = Exchange(connection, is_head, fields.close or self._draining, body)
        try:
            result = self._application(environ, exchange.start_response)
            if type(result) is list and len(result) == 1 and not exchange.sent:
                exchange.send_whole(result[0])
            else:
                self._send_result(exchange, result)
        except ClientGone:
            return None
        except BaseException as error:  # noqa: B902 - SystemExit and KeyboardInterrupt end the request alone
            text = self._report(name or fields.request_name, method, target["RAW_URI"], error)
            if not exchange.sent:
                page = text if self._debug else _http.failure_text(name or fields.request_name)
                self._send_failure(connection, error, page)
            return None
        if body is None:
            return b"" if exchange.usable else None
        try:
            return body.discard() if exchange.usable else None
        except (OSError, MalformedRequest):
            return None

    def _send_result(self, exchange: Exchange, result: Iterable[bytes]) -> None:
        """Send what the application returned, and close it, whatever happens (PEP 3333, "Server/Gateway Side")."""
        try:
            if type(result) is FileWrapper and exchange.send_file(result):
                return
            if isinstance(result, (list, tuple)) and len(result) == 1 and not exchange.sent:
                exchange.send_whole(result[0])
                return
            for data in result:
                if exchange.sent and exchange.client_left():
                    raise ClientGone("the client left")
                exchange.write(data)
                if exchange.needs_no_more():
                    break
            exchange.finish()
        finally:
            close = getattr(result, "close", None)
            if close is not None:
                close()

    def _send_failure(self, connection: Connection, error: BaseException, text: str) -> None:
        if isinstance(error, BodyTooLong):
            self._refuse(connection, "413 Content Too Large", "the request body is too long")
        else:
            self._refuse(connection, "500 Internal Server Error", text)

    def _refuse(self, connection: Connection, status: str, text: str) -> None:
        """Answer with a page of the runtime. The connection ends there: its body may be unread."""
        try:
            connection.send(_http.plain_page(status, text + "\n", close=True))
        except OSError:
            pass

    def _prepare(self, line: bytes, block: bytes) -> Prepared:
        """Put an environ together. One whose line and fields were seen before is kept for the requests that have both."""
        is_kept = line in self._lines and block in self._blocks
        fields, base = self._blocks.get(block) or self._parse_block(block)
        target = self._lines.get(line) or self._parse_line(line)
        environ = {**base, **target}
        if is_kept:
            if len(self._prepared) >= _PREPARED_MAX:
                self._prepared.clear()
            self._prepared[line, block] = fields, target, environ.copy()
        return fields, target, environ

    def _parse_line(self, line: bytes) -> Environ:
        parsed = _http.parse_request_line(line)
        part = {
            "REQUEST_METHOD": parsed.method,
            "RAW_URI": parsed.target,
            "REQUEST_URI": parsed.target,
            # PEP 3333, "Unicode Issues": bytes as latin-1.
            "PATH_INFO": parsed.decoded_path.decode("latin-1"),
            "QUERY_STRING": parsed.query,
        }
        self._lines.remember(line, part)
        return part

    def _parse_block(self, block: bytes) -> Tuple[FieldBlock, Environ]:
        fields = _http.parse_fields(block)
        parsed = (fields, self._base_environ(fields))
        self._blocks.remember(block, parsed)
        return parsed

    def _base_environ(self, fields: FieldBlock) -> Environ:
        """Build what requests with these fields have in common (PEP 3333, "environ Variables")."""
        environ: Environ = {
            "SERVER_NAME": fields.host,
            "SERVER_PORT": fields.port,
            "SERVER_PROTOCOL": "HTTP/1.1",
            "SERVER_SOFTWARE": "larder",
            "REMOTE_ADDR": fields.client,
            "SCRIPT_NAME": "",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": fields.scheme,
            "wsgi.input": self._no_input,
            "wsgi.input_terminated": True,
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": self._threads > 1,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
            "wsgi.file_wrapper": FileWrapper,
            "larder.request": fields.request_name,
        }
        for name, value in fields.fields:
            key = name.upper().replace("-", "_")
            if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                key = "HTTP_" + key
            if key in environ:
                # RFC 9110, 5.3; cookies are joined as RFC 6265, 5.4 writes them.
                value = environ[key] + ("; " if key == "HTTP_COOKIE" else ",") + value
            environ[key] = value
        return environ


def _nothing() -> None:
    pass


def _pipe() -> Tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write
