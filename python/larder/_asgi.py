"""Serve an ASGI 3 application on a listening Unix socket, in one asyncio loop.

A `Connection` cuts bytes into requests and hands each to an exchange: `HttpExchange` here, or the one of
`_websocket`. The exchange is what the application sees as `receive` and `send`. The connection takes its
next request when the response is complete; the application may go on after that (background tasks).
"""

import asyncio
import signal
import socket
import sys
from typing import Any, Awaitable, Callable, Dict, List, MutableMapping, Optional, Set, Tuple, Union

from . import _http, _peers
from ._http import ChunkedBody, FieldBlock, InvalidResponse, LengthBody, MalformedRequest
from ._runtime import Control, LateFiles, LoadFailed, Settings, guard_forks, ready_message

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Application = Callable[[Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

_RECEIVE_BYTES = 64 * 1024
# More of a request body than this is not read before the application asks for it.
_BODY_BYTES_BUFFERED_MAX = 64 * 1024
_COPY_BYTES_MAX = 32 * 1024
_BACKLOG = 1024


def serve(load: Callable[[], Application], listener: socket.socket, control: Control, settings: Settings) -> None:
    """Load the application and serve it until SIGTERM. Raise `LoadFailed` if that can't begin."""
    asyncio.run(_serve(load, listener, control, settings))


async def _serve(load: Callable[[], Application], listener: socket.socket, control: Control, settings: Settings) -> None:
    # Inside of the loop, since modules may look for a running one while they are imported.
    application = load()
    loop = asyncio.get_running_loop()
    lifespan = Lifespan(application)
    await lifespan.startup()
    draining = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, draining.set)
    server = Server(application, control, settings, lifespan.state, loop)
    listener.setblocking(False)
    # From 3.13 on asyncio removes the socket's file at the end, which is Larder's to do.
    options: Dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
    accepting = await loop.create_unix_server(lambda: Connection(server), sock=listener, backlog=_BACKLOG, **options)
    guard_forks(control, lambda: [fd for fd in (listener.fileno(), *server.descriptors()) if fd >= 0])
    message = ready_message(settings)
    control.send("ready", message)
    server.after_request = LateFiles(control, settings, message["files"]).look
    await draining.wait()
    accepting.close()
    await server.drain()
    await lifespan.shutdown()
    # A second SIGTERM would end the interpreter in the middle of its exit handlers.
    loop.remove_signal_handler(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class Lifespan:
    """The lifespan protocol (ASGI, "Lifespan Protocol")."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._task: Optional["asyncio.Task[None]"] = None
        self._events: "asyncio.Queue[Message]" = asyncio.Queue()
        self._answers: "asyncio.Queue[Message]" = asyncio.Queue()
        self.state: Dict[str, Any] = {}
        """Copied into the scope of each request."""

    async def startup(self) -> None:
        """Start the application. One that does not know the protocol, and raises, is served without it."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        answer = await self._exchange("lifespan.startup")
        if answer is None:
            error = self._task.exception()
            if error is not None:
                print(f"larder: the application has no lifespan protocol: {type(error).__name__}: {error}", file=sys.stderr)
            self._task = None
        elif answer["type"] == "lifespan.startup.failed":
            # Frameworks raise after this message, and the exception says more.
            await asyncio.wait({self._task}, timeout=0.2)
            cause = self._task.exception() if self._task.done() and not self._task.cancelled() else None
            message = str(answer.get("message") or cause or "it gave no reason")
            raise LoadFailed(f"the application's lifespan startup failed: {message}") from cause

    async def shutdown(self) -> None:
        if self._task is None or self._task.done():
            return
        answer = await self._exchange("lifespan.shutdown")
        if answer is not None and answer["type"] == "lifespan.shutdown.failed":
            print(f"larder: lifespan shutdown failed: {answer.get('message', '')}", file=sys.stderr)
        await asyncio.wait({self._task}, timeout=1)

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self._application(scope, self._events.get, self._answers.put)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            # As they are, SystemExit and KeyboardInterrupt would end the loop.
            raise RuntimeError(f"{type(error).__name__} in the lifespan of the application") from error

    async def _exchange(self, kind: str) -> Optional[Message]:
        """Send an event and wait for its answer, or for the end of the application."""
        assert self._task is not None
        self._events.put_nowait({"type": kind})
        waiting = asyncio.ensure_future(self._answers.get())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done() and self._answers.empty():
            waiting.cancel()
            return None
        return await waiting


class Server:
    """What the connections of a process share."""

    def __init__(
        self,
        application: Application,
        control: Control,
        settings: Settings,
        state: Dict[str, Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.application = application
        self.report = control.report_error
        self.debug = settings.debug
        self.larder = settings.server
        self.body_bytes_max = settings.body_bytes_max
        self.state = state
        self.loop = loop
        self.after_request: Callable[[], None] = _nothing
        """Called behind each request."""
        self.draining = False
        self.connections: Set["Connection"] = set()
        self.buffer = memoryview(bytearray(_RECEIVE_BYTES))
        """Where all connections receive: the bytes are taken out at once."""
        self._running: Set["asyncio.Task[None]"] = set()
        self._blocks = _http.Memo()
        self._lines = _http.Memo()
        self._start = _task_starter(loop)

    def descriptors(self) -> List[int]:
        """Return the descriptors of the connections, or -1 for closed ones."""
        return [connection.transport.get_extra_info("socket").fileno() for connection in list(self.connections)]

    def start(self, coroutine: Any) -> None:
        """Run the first step of a coroutine now, as a task, and the rest when the loop gets to it."""
        task = self._start(coroutine)
        if not task.done():
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def drain(self) -> None:
        """Finish the requests under way, and those that were sent before the drain began."""
        self.draining = True
        for _ in range(3):
            await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.begin_drain()
        while self._running or any(connection.busy for connection in self.connections):
            if self._running:
                await asyncio.wait(set(self._running), timeout=0.05)
            else:
                await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.close()

    def parse(self, data: bytes, end: int) -> Tuple[FieldBlock, Scope]:
        """Parse a request head and build its scope (ASGI, "HTTP Connection Scope")."""
        line, block, name = _http.split_head(data, end)
        fields, base, headers = self._blocks.get(block) or self._parse_block(block)
        target = self._lines.get(line) or self._parse_line(line)
        scope = {**base, **target}
        # All that the application may change is its own.
        scope["asgi"] = {"version": "3.0", "spec_version": "2.3"}
        scope["headers"] = list(headers)
        scope["state"] = self.state.copy()
        scope["extensions"] = {"larder.request": {"name": name or fields.request_name}}
        return fields, scope

    def _parse_line(self, line: bytes) -> Scope:
        parsed = _http.parse_request_line(line)
        part = {
            "method": parsed.method,
            "path": parsed.decoded_path.decode("utf-8", "replace"),
            "raw_path": parsed.path,
            "query_string": parsed.query.encode("latin-1"),
        }
        self._lines.remember(line, part)
        return part

    def _parse_block(self, block: bytes) -> Tuple[FieldBlock, Scope, List[Tuple[bytes, bytes]]]:
        fields = _http.parse_fields(block)
        base: Scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": fields.scheme,
            "root_path": "",
            # The port of the client is not known here.
            "client": (fields.client, 0) if fields.client else None,
            "server": (fields.host, int(fields.port)),
        }
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.fields]
        parsed = (fields, base, headers)
        self._blocks.remember(block, parsed)
        return parsed


def _nothing() -> None:
    pass


def _task_starter(loop: asyncio.AbstractEventLoop) -> Callable[[Any], "asyncio.Task[None]"]:
    """Return a function that makes a task and runs its first step at once.

    An application that never has to wait is through without another turn of the loop. It still is a task:
    frameworks ask for the current one, and context variables are those of the request. Call it from
    callbacks of the loop only, where no task is running.
    """
    if sys.version_info >= (3, 12):
        return lambda coroutine: asyncio.Task(coroutine, loop=loop, eager_start=True)
    # Older versions do the same if the first step is taken out of the queue. They change no more.
    queue: Any = getattr(loop, "_ready", None)
    if queue is None:
        return loop.create_task

    def start(coroutine: Any) -> "asyncio.Task[None]":
        before = len(queue)
        task: "asyncio.Task[None]" = loop.create_task(coroutine)
        if len(queue) == before + 1:
            queue.pop()._run()
        return task

    return start


class Connection(asyncio.BufferedProtocol):
    """A connection of Larder: one request at a time."""

    __slots__ = ("_exchange", "_partial", "_server", "_waiters", "lost", "paused", "transport")

    def __init__(self, server: Server) -> None:
        self._server = server
        self._exchange: Any = None
        self._partial = bytearray()
        """The beginning of a head that is not complete yet."""
        self._waiters: List["asyncio.Future[None]"] = []
        self.paused = False
        """Whether the send buffer is full."""
        self.lost = False
        self.transport: Any = None

    @property
    def busy(self) -> bool:
        return self._exchange is not None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._server.connections.add(self)
        if not _peers.is_of(self._server.larder, transport.get_extra_info("socket")):
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._take(bytes(self._server.buffer[:nbytes]))

    def _take(self, data: bytes) -> None:
        try:
            if self._exchange is not None:
                self._exchange.receive_bytes(data)
            else:
                self._read_head(data)
        except MalformedRequest as error:
            print(f"larder: malformed request: {error}", file=sys.stderr)
            self.transport.abort()

    def eof_received(self) -> bool:
        # Larder closes its side when the client left: the transport is closed, which tells the exchange.
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self.lost = True
        self._server.connections.discard(self)
        self.resume_writing()
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            exchange.disconnected()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        _wake(self._waiters)

    async def drained(self) -> None:
        """Wait until the send buffer has room again."""
        while self.paused:
            waiter = self._server.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def begin_drain(self) -> None:
        if self._exchange is None:
            self.transport.close()
        else:
            self._exchange.begin_drain()

    def finish(self, usable: bool, rest: bytes) -> None:
        """Take the next request, of which `rest` is the beginning: the exchange is over."""
        self._exchange = None
        self._server.after_request()
        if not usable or self._server.draining:
            self.transport.close()
            return
        if rest:
            # From the loop: here a task may be running, and nothing may come in between.
            self.transport.pause_reading()
            self._server.loop.call_soon(self._take_rest, rest)
        else:
            self.transport.resume_reading()

    def _take_rest(self, rest: bytes) -> None:
        if not self.lost:
            self.transport.resume_reading()
            self._take(rest)

    def _read_head(self, data: bytes) -> None:
        partial = self._partial
        if partial:
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
        if max(end, len(partial)) > _http.HEAD_BYTES_MAX:
            raise MalformedRequest("the head is too long")
        if end < 0:
            return
        fields, scope = self._server.parse(data, end)
        received = data[end + 4 :]
        if fields.websocket and scope["method"] == "GET":
            from ._websocket import WebSocketExchange

            self._begin(WebSocketExchange(self._server, self, scope, fields), received)
            return
        exchange = HttpExchange(self._server, self, scope, fields)
        limit = self._server.body_bytes_max
        if limit is not None and fields.body_length > limit:
            exchange.refuse("413 Content Too Large", "the request body is too long")
        else:
            self._begin(exchange, received)

    def _begin(self, exchange: Any, received: bytes) -> None:
        self._exchange = exchange
        if received:
            exchange.receive_bytes(received)
        self._server.start(exchange.run())


class HttpExchange:
    """One request and its response, as `receive` and `send` of the application see them."""

    __slots__ = (
        "_application_done", "_body", "_bodyless", "_buffered", "_chunked", "_closes", "_connection", "_expects_continue", "_head",
        "_is_head", "_left", "_next", "_pieces", "_reading_paused", "_received", "_request_ended", "_scope", "_server", "_waiters", "gone", "over",
    )  # fmt: skip

    def __init__(self, server: Server, connection: Connection, scope: Scope, fields: FieldBlock) -> None:
        self._server = server
        self._connection = connection
        self._scope = scope
        length = fields.body_length
        self._body: Union[LengthBody, ChunkedBody] = ChunkedBody() if length == _http.CHUNKED else LengthBody(length)
        self._expects_continue = fields.expects_continue and not self._body.done
        self._closes = fields.close
        self._is_head = self._bodyless = scope["method"] == "HEAD"
        self._pieces: List[bytes] = []
        self._buffered = 0
        self._received = 0
        self._reading_paused = False
        self._request_ended = False
        """Whether the application got the last piece of the request body."""
        self._waiters: List["asyncio.Future[None]"] = []
        self._head: Optional[bytes] = None
        """The head of the response, until it is sent; then it is empty."""
        self._left = -1
        """Bytes that are still to come by the Content-Length of the application, or -1."""
        self._chunked = False
        self._next = b""
        """The beginning of the next request."""
        self.over = False
        """Whether the response is complete or given up."""
        self.gone = False
        """Whether the client left."""

    async def run(self) -> None:
        try:
            await self._server.application(self._scope, self.receive, self.send)
            if not self.over and not self.gone:
                raise InvalidResponse("the application returned before its response was complete")
        except BaseException as error:  # noqa: B902 - SystemExit and KeyboardInterrupt end the request alone
            self._fail(error)

    async def receive(self) -> Message:
        """Return the next event (ASGI, "Request" and "Disconnect")."""
        while True:
            if self.gone or self.over:
                return {"type": "http.disconnect"}
            if not self._request_ended:
                if self._pieces or self._body.done:
                    return self._take_pieces()
                if self._expects_continue:
                    self._expects_continue = False
                    self._connection.transport.write(_http.CONTINUE)
            waiter = self._server.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def _take_pieces(self) -> Message:
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._buffered = 0
        self._request_ended = self._body.done
        if self._reading_paused:
            self._reading_paused = False
            self._connection.transport.resume_reading()
        return {"type": "http.request", "body": data, "more_body": not self._request_ended}

    async def send(self, message: Message) -> None:
        """Take a part of the response (ASGI, "Response Start" and "Response Body")."""
        kind = message["type"]
        if self.gone:
            return
        if kind == "http.response.body":
            if self._head is None:
                raise RuntimeError("http.response.body before http.response.start")
            if self.over:
                if self._bodyless:
                    return
                raise RuntimeError("http.response.body after the response was complete")
            data = message.get("body", b"")
            if type(data) is not bytes:
                if not isinstance(data, (bytes, bytearray, memoryview)):
                    raise TypeError(f"the body is {type(data).__name__}, not bytes")
                data = bytes(data)
            self._send_body(data, bool(message.get("more_body", False)))
            if self._connection.paused:
                await self._connection.drained()
        elif kind == "http.response.start":
            if self._head is not None:
                raise RuntimeError("http.response.start was sent before")
            status = message["status"]
            headers = message.get("headers", ())
            if status == 204:
                # RFC 9110, 8.6.
                headers = [field for field in headers if bytes(field[0]).lower() != b"content-length"]
            self._head, self._left = _http.raw_response_head(status, headers)
            if status == 204 or status == 304:
                self._bodyless = True
        else:
            raise RuntimeError(f"{kind!r} is no message of an http response")

    def receive_bytes(self, data: bytes) -> None:
        """Take bytes of the request body from the connection."""
        body = self._body
        if body.done:
            if self._left or self._head != b"":
                raise MalformedRequest("bytes behind the end of the request")
            # By its length the response is complete, so Larder may go on, but the application has not ended it.
            self._next += data
            self._connection.transport.pause_reading()
            return
        piece = body.feed(data)
        if self.over:
            self._received += len(data)
            if body.done or self._received > _http.DISCARD_BYTES_MAX:
                self._connection.finish(body.done, body.rest)
            return
        if body.rest:
            raise MalformedRequest("bytes behind the end of the request body")
        if piece:
            self._received += len(piece)
            limit = self._server.body_bytes_max
            if limit is not None and self._received > limit:
                self.refuse("413 Content Too Large", "the request body is too long")
                self.disconnected()
                return
            self._pieces.append(piece)
            self._buffered += len(piece)
            if self._buffered > _BODY_BYTES_BUFFERED_MAX and not self._reading_paused:
                self._reading_paused = True
                self._connection.transport.pause_reading()
        if piece or body.done:
            _wake(self._waiters)

    def disconnected(self) -> None:
        self.gone = True
        _wake(self._waiters)

    def begin_drain(self) -> None:
        self._closes = True
        if self.over:
            # Only the rest of the request body was to come.
            self._connection.finish(False, b"")

    def _send_body(self, data: bytes, more: bool) -> None:
        transport = self._connection.transport
        first = self._take_head(data, more) if self._head else b""
        if self._bodyless:
            # The head is all of it. What else the application sends is dropped.
            transport.write(first)
            self._end(usable=True)
            return
        if self._chunked:
            first += b"%x\r\n" % len(data) if data else b""
            tail = (b"\r\n" if data else b"") + (b"" if more else _http.LAST_CHUNK)
        else:
            tail = b""
            if len(data) > self._left:
                transport.write(first + data[: self._left])
                self._left = 0
                self._end(usable=False)
                raise InvalidResponse("the body is longer than the Content-Length of the application")
            self._left -= len(data)
        if len(data) <= _COPY_BYTES_MAX:
            data = first + data + tail
            if data:
                transport.write(data)
        else:
            transport.writelines([first, data, tail])
        if not more:
            if self._left > 0:
                self._end(usable=False)
                raise InvalidResponse(f"the body is {self._left} bytes shorter than the Content-Length of the application")
            self._end(usable=True)

    def _take_head(self, data: bytes, more: bool) -> bytes:
        head: bytes = self._head  # type: ignore[assignment]
        self._head = b""
        if self._left < 0 and not more and (data if self._is_head else not self._bodyless):
            self._left = len(data)
            head += b"\r\nContent-Length: %d" % len(data)
        elif self._left < 0 and not self._bodyless:
            self._chunked = True
            head += b"\r\nTransfer-Encoding: chunked"
        if self._closes or self._server.draining or self._spoils_connection():
            self._closes = True
            head += b"\r\nConnection: close"
        return head + b"\r\n\r\n"

    def _spoils_connection(self) -> bool:
        """Say whether the rest of the request body is too much to be read away, or may never come."""
        return self._expects_continue or (not self._body.done and self._body.remaining > _http.DISCARD_BYTES_MAX)

    def _end(self, usable: bool) -> None:
        """Give the connection back: the response is complete."""
        self.over = True
        _wake(self._waiters)
        if not usable or self._closes or self._spoils_connection():
            self._connection.finish(False, b"")
        elif self._body.done:
            self._connection.finish(True, self._next)
        else:
            # The rest of the request body is read away as it comes.
            self._pieces.clear()
            self._received = 0
            self._connection.transport.resume_reading()

    def _fail(self, error: BaseException) -> None:
        if self.gone and isinstance(error, (OSError, asyncio.CancelledError)):
            return
        scope = self._scope
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        target = (scope["raw_path"] + query).decode("latin-1")
        name = scope["extensions"]["larder.request"]["name"]
        text = self._server.report(name, scope["method"], target, error)
        if self.gone or self.over:
            return
        self.refuse("500 Internal Server Error", text if self._server.debug else _http.failure_text(name))

    def refuse(self, status: str, text: str) -> None:
        """Answer with a page of the runtime, or break off a response that is sent in part already."""
        if self._head is None or self._head:
            self._connection.transport.write(_http.plain_page(status, text + "\n", close=True))
            self._head = b""
        self._end(usable=False)


def _wake(waiters: List["asyncio.Future[None]"]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
