"""WebSocket (RFC 6455, the server's side) as ASGI applications see it. Extensions such as compression are not offered."""

import base64
import binascii
import hashlib
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, List, NamedTuple, Optional, Tuple

from . import _http
from ._http import FieldBlock

if TYPE_CHECKING:
    import asyncio

    from ._asgi import Connection, Message, Scope, Server

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
_QUEUED_BYTES_MAX = 64 * 1024
_CLOSE_SECONDS = 1.0
_KEY_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10

NORMAL, PROTOCOL_ERROR, NO_CODE, ABNORMAL, NOT_UTF8, TOO_LONG, FAILED, RESTART = 1000, 1002, 1005, 1006, 1007, 1009, 1011, 1012


class ProtocolFault(ValueError):
    """The client broke the protocol: the connection is closed with this code (RFC 6455, 7.4.1)."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Frame(NamedTuple):
    kind: int
    payload: bytes


class Decoder:
    """Bytes of a client to whole messages and control frames (RFC 6455, 5)."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._kind = 0
        """The kind of the message whose fragments are coming, or 0."""
        self._fragments: List[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> List[Frame]:
        self._buffer += data
        frames: List[Frame] = []
        at = 0
        while True:
            found = self._frame(at)
            if found is None:
                break
            at, final, kind, payload = found
            if kind >= _CLOSE:
                frames.append(Frame(kind, payload))
                continue
            if (kind == _CONTINUATION) != bool(self._kind):
                raise ProtocolFault(PROTOCOL_ERROR, "fragments of two messages")
            self._kind = self._kind or kind
            self._fragments.append(payload)
            self._size += len(payload)
            if final:
                frames.append(Frame(self._kind, b"".join(self._fragments)))
                self._kind = self._size = 0
                self._fragments.clear()
        del self._buffer[:at]
        return frames

    def _frame(self, at: int) -> Optional[Tuple[int, bool, int, bytes]]:
        """Decode the frame at `at`. Return where it ends, whether it is final, its kind and payload."""
        buffer = self._buffer
        if len(buffer) < at + 2:
            return None
        first, second = buffer[at], buffer[at + 1]
        kind = first & 15
        length = second & 127
        if first & 0x70:
            raise ProtocolFault(PROTOCOL_ERROR, "reserved bits without an extension")
        if kind not in (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG):
            raise ProtocolFault(PROTOCOL_ERROR, "unknown kind of frame")
        if not second & 128:
            raise ProtocolFault(PROTOCOL_ERROR, "frame without mask")
        if kind >= _CLOSE and (length > 125 or not first & 128):
            raise ProtocolFault(PROTOCOL_ERROR, "long or fragmented control frame")
        at += 2
        if length > 125:
            size = 2 if length == 126 else 8
            if len(buffer) < at + size:
                return None
            length = int.from_bytes(buffer[at : at + size], "big")
            at += size
        if self._size + length > MESSAGE_BYTES_MAX:
            raise ProtocolFault(TOO_LONG, "message too long")
        if len(buffer) < at + 4 + length:
            return None
        mask = bytes(buffer[at : at + 4])
        at += 4
        return at + length, bool(first & 128), kind, apply_mask(bytes(buffer[at : at + length]), mask)


def apply_mask(payload: bytes, mask: bytes) -> bytes:
    """Mask or unmask (RFC 6455, 5.3), as one long number: far quicker than byte by byte."""
    size = len(payload)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")


def frame_head(kind: int, length: int) -> bytes:
    """Render the head of an unmasked, final frame."""
    if length < 126:
        return bytes((128 | kind, length))
    if length < 1 << 16:
        return bytes((128 | kind, 126)) + length.to_bytes(2, "big")
    return bytes((128 | kind, 127)) + length.to_bytes(8, "big")


def parse_close(payload: bytes) -> Tuple[int, str]:
    """Return code and reason of a Close frame (RFC 6455, 5.5.1 and 7.4)."""
    if not payload:
        return NO_CODE, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        raise ProtocolFault(PROTOCOL_ERROR, "invalid code of a Close frame")
    return code, decode_text(payload[2:])


def decode_text(payload: bytes) -> str:
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        raise ProtocolFault(NOT_UTF8, "text is not UTF-8") from None


def accept_key(key: str) -> Optional[str]:
    """Return Sec-WebSocket-Accept for a client's key, or nothing if that one is malformed (RFC 6455, 4.2)."""
    try:
        if len(base64.b64decode(key, validate=True)) != 16:
            return None
    except (binascii.Error, ValueError):
        return None
    return base64.b64encode(hashlib.sha1(key.encode("ascii") + _KEY_SUFFIX).digest()).decode("ascii")


class WebSocketExchange:
    """A WebSocket, as `receive` and `send` of the application see it (ASGI, "WebSocket")."""

    def __init__(self, server: "Server", connection: "Connection", scope: "Scope", fields: FieldBlock) -> None:
        self._server = server
        self._connection = connection
        self._scope = scope
        self._target = (scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")).decode("latin-1")
        self._name: str = scope["extensions"]["larder.request"]["name"]
        named = dict(fields.fields)
        self._accept = accept_key(named.get("sec-websocket-key", ""))
        if named.get("sec-websocket-version") != "13" or fields.body_length:
            self._accept = None
        protocols = ",".join(value for name, value in fields.fields if name == "sec-websocket-protocol")
        scope.pop("method")
        scope["type"] = "websocket"
        scope["scheme"] = "wss" if fields.scheme == "https" else "ws"
        scope["subprotocols"] = [protocol.strip() for protocol in protocols.split(",") if protocol.strip()]
        scope["extensions"]["websocket.http.response"] = {}
        self._decoder = Decoder()
        self._events: Deque["Message"] = deque([{"type": "websocket.connect"}])
        self._queued = 0
        self._reading_paused = False
        self._waiters: List["asyncio.Future[None]"] = []
        self._state = "connecting"
        """`connecting`, `open`, `denying` (a response in place of the handshake is under way), `closed`."""
        self._disconnect: Optional["Message"] = None
        """What the application receives from the end on."""
        self._denial: bytes = b""
        self._close_received = False

    async def run(self) -> None:
        if self._accept is None:
            self._respond(_http.plain_page("400 Bad Request", "the WebSocket handshake is malformed\n", close=True))
            return
        try:
            await self._server.application(self._scope, self.receive, self.send)
            if self._state in ("connecting", "denying"):
                raise RuntimeError("the application returned before it accepted or closed the WebSocket")
            if self._state == "open":
                self._close(NORMAL, "")
        except BaseException as error:  # noqa: B902 - SystemExit and KeyboardInterrupt end the request alone
            self._fail(error)

    async def receive(self) -> "Message":
        while not self._events:
            if self._disconnect is not None:
                return self._disconnect
            waiter = self._server.loop.create_future()
            self._waiters.append(waiter)
            await waiter
        event = self._events.popleft()
        self._queued -= _size(event)
        if self._reading_paused and self._queued <= _QUEUED_BYTES_MAX:
            self._reading_paused = False
            self._connection.transport.resume_reading()
        return event

    async def send(self, message: "Message") -> None:
        kind = message["type"]
        if self._disconnect is not None:
            return
        if self._state == "open" and kind == "websocket.send":
            text = message.get("text")
            if text is not None:
                self._send_frame(_TEXT, text.encode("utf-8"))
            else:
                self._send_frame(_BINARY, bytes(message["bytes"]))
        elif self._state == "open" and kind == "websocket.close":
            self._close(int(message.get("code") or NORMAL), str(message.get("reason") or ""))
        elif self._state == "connecting" and kind == "websocket.accept":
            self._accept_handshake(message)
        elif self._state == "connecting" and kind == "websocket.close":
            self._respond(_http.plain_page("403 Forbidden", "the application refused the WebSocket\n", close=True))
        elif self._state == "connecting" and kind == "websocket.http.response.start":
            self._denial, _ = _http.raw_response_head(message["status"], message.get("headers", ()))
            self._state = "denying"
        elif self._state == "denying" and kind == "websocket.http.response.body":
            self._deny(bytes(message.get("body", b"")), bool(message.get("more_body", False)))
        else:
            raise RuntimeError(f"{kind!r} is not possible now: the WebSocket is {self._state}")
        if self._connection.paused:
            await self._connection.drained()

    def receive_bytes(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._take_frame(frame)
        except ProtocolFault as fault:
            if self._state == "open":
                self._close(fault.code, fault.reason)
            self._close_received = True
            self._connection.transport.close()

    def disconnected(self) -> None:
        """Tell the application that the connection is lost."""
        self._end(ABNORMAL, "")

    def begin_drain(self) -> None:
        if self._state == "open":
            self._close(RESTART, "")

    def _take_frame(self, frame: Frame) -> None:
        if frame.kind == _CLOSE:
            self._close_received = True
            code, reason = parse_close(frame.payload)
            if self._state == "open":
                self._send_frame(_CLOSE, frame.payload)
                self._state = "closed"
            self._end(code, reason)
            self._connection.transport.close()
        elif self._state == "closed":
            # Only the answer to our Close frame is of interest.
            return
        elif frame.kind == _PING and self._state == "open":
            self._send_frame(_PONG, frame.payload)
        elif frame.kind == _TEXT:
            self._queue({"type": "websocket.receive", "text": decode_text(frame.payload)})
        elif frame.kind == _BINARY:
            self._queue({"type": "websocket.receive", "bytes": frame.payload})

    def _queue(self, event: "Message") -> None:
        self._events.append(event)
        self._queued += _size(event)
        if self._queued > _QUEUED_BYTES_MAX and not self._reading_paused:
            self._reading_paused = True
            self._connection.transport.pause_reading()
        self._wake()

    def _accept_handshake(self, message: "Message") -> None:
        headers = list(message.get("headers") or ())
        protocol = message.get("subprotocol")
        if protocol is not None:
            headers.append((b"Sec-WebSocket-Protocol", protocol.encode("latin-1")))
        lines, _ = _http.raw_fields(headers)
        head = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {self._accept}"
        self._connection.transport.write(head.encode("ascii") + b"".join(lines) + b"\r\n\r\n")
        self._state = "open"

    def _deny(self, body: bytes, more: bool) -> None:
        """Send the response that refuses the handshake. Its end is that of the connection."""
        head, self._denial = self._denial, b""
        if head:
            head += b"\r\nConnection: close\r\n\r\n"
        self._connection.transport.write(head + body)
        if not more:
            self._respond(b"")

    def _respond(self, data: bytes) -> None:
        """Answer without a WebSocket, and close the connection."""
        if data:
            self._connection.transport.write(data)
        self._state = "closed"
        self._end(ABNORMAL, "")
        self._connection.transport.close()

    def _close(self, code: int, reason: str) -> None:
        """Send a Close frame, and wait a moment for the client's (RFC 6455, 7.1.1)."""
        payload = reason.encode("utf-8")[:123].decode("utf-8", "ignore").encode("utf-8")
        self._send_frame(_CLOSE, b"" if code == NO_CODE else code.to_bytes(2, "big") + payload)
        self._state = "closed"
        self._end(code, reason)
        # The answer of the client would not be seen otherwise.
        self._connection.transport.resume_reading()
        self._server.loop.call_later(_CLOSE_SECONDS, self._connection.transport.close)

    def _end(self, code: int, reason: str) -> None:
        self._state = "closed"
        if self._disconnect is None:
            self._disconnect = {"type": "websocket.disconnect", "code": code, "reason": reason}
        self._wake()

    def _send_frame(self, kind: int, payload: bytes) -> None:
        if not self._connection.lost:
            self._connection.transport.write(frame_head(kind, len(payload)) + payload)

    def _fail(self, error: BaseException) -> None:
        if self._disconnect is not None and isinstance(error, OSError):
            return
        text = self._server.report(self._name, "GET", self._target, error)
        if self._state == "open":
            self._close(FAILED, "")
        elif self._state == "connecting" or self._denial:
            page = text if self._server.debug else _http.failure_text(self._name)
            self._respond(_http.plain_page("500 Internal Server Error", page + "\n", close=True))
        elif self._state == "denying":
            self._respond(b"")

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


def _size(event: Any) -> int:
    return len(event.get("text") or event.get("bytes") or "")
