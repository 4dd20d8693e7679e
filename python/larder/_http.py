"""HTTP/1.1 messages as bytes and values: request heads, bodies, response heads.

There is no socket, no clock and no application here. Both interfaces (`_wsgi`, `_asgi`) parse and
write by these functions. Request heads are read strictly (RFC 9112): Larder, the only client, writes
them well-formed, so anything else is a fault of somebody and closes the connection.
"""

import re
from http import HTTPStatus
from typing import Any, Dict, List, NamedTuple, Tuple
from urllib.parse import unquote_to_bytes

HEAD_BYTES_MAX = 256 * 1024
CHUNK_LINE_BYTES_MAX = 4096
TRAILER_BYTES_MAX = 16 * 1024
# An unread rest of a request body up to this size is read away, so that the connection stays usable.
DISCARD_BYTES_MAX = 64 * 1024

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

CHUNKED = -1

_MEMO_ENTRIES_MAX = 512
_MEMO_KEY_BYTES_MAX = 4096
_REQUEST_FIELD = b"\r\nLarder-Request: "
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_STATUS = re.compile(r"[2-9][0-9][0-9] [^\x00-\x08\x0a-\x1f\x7f]*\Z")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\Z", re.DOTALL)
# PEP 3333, "Other HTTP Features": the server alone decides about these (the list is RFC 2616's, as in wsgiref).
_HOP_BY_HOP = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer trailers transfer-encoding upgrade".split()
)


class MalformedRequest(ValueError):
    """Bytes that are no request, or a body that doesn't keep to its framing. The connection can only be closed."""


class InvalidResponse(ValueError):
    """A status or a field of the application that can't be sent. The message names it."""


class FieldBlock(NamedTuple):
    """The fields of a request head, and what Larder says about the request by them.

    Values are immutable and are shared between requests whose fields are the same byte for byte.
    """

    fields: Tuple[Tuple[str, str], ...]
    """Lower-case names and values in their order, without those that no application may see."""
    body_length: int
    """The length of the body, or `CHUNKED`."""
    close: bool
    expects_continue: bool
    request_name: str
    scheme: str
    host: str
    port: str
    client: str
    websocket: bool


class RequestLine(NamedTuple):
    method: str
    target: str
    path: bytes
    """The path as received, still percent-encoded."""
    decoded_path: bytes
    query: str


class Memo(Dict[bytes, Any]):
    """A bounded map from bytes of a request to what was made of them.

    It is emptied when it is full: keeping an order of use would cost each hit more than a rare miss costs.
    """

    def remember(self, key: bytes, value: Any) -> None:
        if len(key) <= _MEMO_KEY_BYTES_MAX:
            if len(self) >= _MEMO_ENTRIES_MAX:
                self.clear()
            self[key] = value


def split_head(data: bytes, end: int) -> Tuple[bytes, bytes, str]:
    """Split a request head, which ends at `end`, into request line, field block and the request's name.

    The name differs from request to request. It is cut out here so that the field blocks of one client
    are equal and can be memoised.
    """
    line_end = data.find(b"\r\n", 0, end)
    if line_end < 0:
        return data[:end], b"", ""
    name_at = data.rfind(_REQUEST_FIELD, line_end, end)
    if name_at < 0:
        return data[:line_end], data[line_end + 2 : end], ""
    value_at = name_at + 18
    value_end = data.find(b"\r\n", value_at, end)
    if value_end < 0:
        return data[:line_end], data[line_end + 2 : name_at], data[value_at:end].decode("latin-1")
    block = data[line_end + 2 : name_at] + data[value_end : end] if name_at > line_end else data[value_end + 2 : end]
    return data[:line_end], block, data[value_at:value_end].decode("latin-1")


def parse_request_line(line: bytes) -> RequestLine:
    """Parse `METHOD SP target SP HTTP/1.1` (RFC 9112, 3), with the target in origin, absolute or asterisk form."""
    parts = line.decode("latin-1").split(" ")
    if len(parts) != 3 or parts[2] != "HTTP/1.1":
        raise MalformedRequest("request line is not of HTTP/1.1")
    method, target, _ = parts
    if not _TOKEN.match(method) or not target or not target.isprintable():
        # isprintable() is also false for some bytes above 0x7f, which no well-formed target holds.
        raise MalformedRequest("method or target of the request line is malformed")
    path, _, query = target.partition("?")
    if not path.startswith("/") and path != "*":
        scheme, separator, rest = path.partition("://")
        if not separator or scheme.lower() not in ("http", "https"):
            raise MalformedRequest("target is neither a path nor a URL")
        path = "/" + rest.partition("/")[2]
    raw = path.encode("latin-1")
    return RequestLine(method, target, raw, unquote_to_bytes(raw) if "%" in path else raw, query)


def parse_fields(block: bytes) -> FieldBlock:
    """Parse a field block (RFC 9112, 5) and read what concerns framing and what Larder added.

    Dropped are names with `_`, which CGI variables can't tell from `-` and so would let a client spell
    a field that Larder removes; `Proxy`, which libraries read as HTTP_PROXY; `Larder-Request`.
    """
    fields: List[Tuple[str, str]] = []
    lengths: List[str] = []
    hosts: List[str] = []
    codings = forwarded_for = forwarded_proto = request_name = connection = upgrade = ""
    expects_continue = False
    text = block.decode("latin-1")
    lines = text.split("\r\n") if text else []
    line_ends = max(len(lines) - 1, 0)
    if text.count("\n") != line_ends or text.count("\r") != line_ends or "\0" in text:
        raise MalformedRequest("fields hold a bare CR, LF or NUL")
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not _TOKEN.match(name):
            raise MalformedRequest("a field has no valid name")
        value = value.strip(" \t")
        if "_" in name or name == "proxy":
            continue
        if name == "content-length":
            lengths.append(value)
        elif name == "transfer-encoding":
            codings += "," + value.lower() if codings else value.lower()
        elif name == "host":
            hosts.append(value)
        elif name == "connection":
            connection += "," + value.lower()
        elif name == "upgrade":
            upgrade = value.lower()
        elif name == "expect":
            expects_continue = value.lower() == "100-continue"
        elif name == "x-forwarded-for":
            forwarded_for = value
        elif name == "x-forwarded-proto":
            forwarded_proto = value
        elif name == "larder-request":
            request_name = value
            continue
        fields.append((name, value))
    if len(hosts) > 1:
        raise MalformedRequest("several Host fields")
    scheme = forwarded_proto.rpartition(",")[2].strip().lower()
    if scheme != "https":
        scheme = "http"
    host, port = _split_host(hosts[0] if hosts else "", scheme)
    tokens = [token.strip() for token in connection.split(",")]
    return FieldBlock(
        fields=tuple(fields),
        body_length=_body_length(lengths, codings),
        close="close" in tokens,
        expects_continue=expects_continue,
        request_name=request_name,
        scheme=scheme,
        host=host,
        port=port,
        client=forwarded_for.rpartition(",")[2].strip(),
        websocket=upgrade == "websocket" and "upgrade" in tokens,
    )


def _body_length(lengths: List[str], codings: str) -> int:
    """Decide on the framing of a request body (RFC 9112, 6.3). Anything ambiguous is refused."""
    if codings:
        if lengths or codings != "chunked":
            raise MalformedRequest("Transfer-Encoding is not chunked alone")
        return CHUNKED
    if not lengths:
        return 0
    if len(lengths) > 1 or not lengths[0].isascii() or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise MalformedRequest("Content-Length is not one number")
    return int(lengths[0])


def _split_host(authority: str, scheme: str) -> Tuple[str, str]:
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit():
        # No port, or the colons are those of an IPv6 address: "[::1]".
        host, port = (host if colon and not port else authority), "443" if scheme == "https" else "80"
    return host, port


class LengthBody:
    """Decode a body of known length."""

    __slots__ = ("done", "remaining", "rest")

    def __init__(self, length: int) -> None:
        self.remaining = length
        self.done = length == 0
        self.rest = b""
        """Bytes after the end of the body."""

    def feed(self, data: bytes) -> bytes:
        """Take received bytes and return those of the body."""
        if len(data) > self.remaining:
            self.rest = data[self.remaining :]
            data = data[: self.remaining]
        self.remaining -= len(data)
        self.done = self.remaining == 0
        return data


class ChunkedBody:
    """Decode a chunked body (RFC 9112, 7.1). Extensions and trailers are bounded and ignored."""

    __slots__ = ("_in_trailer", "_needs_line_end", "_tail", "_trailer_bytes", "done", "remaining", "rest")

    def __init__(self) -> None:
        self.remaining = 0
        """Bytes that are still to come of the current chunk."""
        self.done = False
        self.rest = b""
        self._tail = b""
        self._needs_line_end = False
        self._in_trailer = False
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> bytes:
        """Take received bytes and return those of the body."""
        if self._tail:
            data = self._tail + data
            self._tail = b""
        pieces: List[bytes] = []
        at = 0
        while not self.done and at < len(data):
            if self.remaining:
                piece = data[at : at + self.remaining]
                pieces.append(piece)
                at += len(piece)
                self.remaining -= len(piece)
                self._needs_line_end = not self.remaining
                continue
            end = data.find(b"\r\n", at)
            if end < 0 or end - at > CHUNK_LINE_BYTES_MAX:
                if len(data) - at > CHUNK_LINE_BYTES_MAX:
                    raise MalformedRequest("a line of the chunked body is too long")
                self._tail = data[at:]
                return b"".join(pieces)
            self._take_line(data[at:end])
            at = end + 2
        if self.done:
            self.rest = data[at:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _take_line(self, line: bytes) -> None:
        if self._needs_line_end:
            if line:
                raise MalformedRequest("a chunk is longer than its size says")
            self._needs_line_end = False
        elif self._in_trailer:
            self._trailer_bytes += len(line) + 2
            if self._trailer_bytes > TRAILER_BYTES_MAX:
                raise MalformedRequest("the trailer is too long")
            self.done = not line
        else:
            size = _SIZE.match(line)
            if not size:
                raise MalformedRequest("a chunk size is not a number")
            self.remaining = int(size.group(1), 16)
            self._in_trailer = self.remaining == 0


# Response heads.

_heads: Dict[Tuple[Any, ...], Tuple[str, int, bytes]] = {}
_heads_missed = 0
# Beyond this no further heads are remembered, so that fields with times and numbers cost no more than the look.
_HEADS_MISSED_MAX = 4096
_status_lines: Dict[str, str] = {}
_field_prefixes: Dict[str, str] = {}
_raw_prefixes: Dict[bytes, bytes] = {}
_CONTENT_LENGTH_PREFIX = "\r\nContent-Length: "
_RAW_CONTENT_LENGTH_PREFIX = b"\r\nContent-Length: "
_DROP = ""


def response_head(status: str, headers: List[Tuple[str, str]]) -> Tuple[str, int, bytes]:
    """Render status line and fields, without the empty line at the end, and return the Content-Length or -1.

    The third is the head as it is sent, with that line, where it is one that is remembered; else nothing.

    Raise `InvalidResponse` for what can't be sent (PEP 3333, "The start_response() Callable").
    """
    try:
        known = _heads.get((status, *headers))
        if known is not None:
            return known
    except TypeError:
        # Fields that are no tuples.
        pass
    text = _status_lines.get(status)
    if text is None:
        text = _status_line(status)
    length = -1
    for name, value in headers:
        prefix = _field_prefixes.get(name)
        if prefix is None:
            prefix = _field_prefix(name)
            if prefix is _DROP:
                raise InvalidResponse(f"the field {name!r} is the server's to send (PEP 3333, hop-by-hop)")
        if prefix is _CONTENT_LENGTH_PREFIX:
            length = _declared_length(value, length)
        try:
            text += prefix + value
        except TypeError:
            raise InvalidResponse(f"the value of the field {name!r} is {type(value).__name__}, not str") from None
    # One look at the whole: each field brought exactly one line end.
    if text.count("\n") != len(headers) or text.count("\r") != len(headers) or "\0" in text:
        raise _blame(headers)
    _remember_head(status, headers, text, length)
    return text, length, b""


def _remember_head(status: str, headers: List[Tuple[str, str]], text: str, length: int) -> None:
    """Remember a head for responses that have the same; where most have fields of their own, that is not tried for long."""
    global _heads_missed
    _heads_missed += 1
    if _heads_missed > _HEADS_MISSED_MAX or len(text) > _MEMO_KEY_BYTES_MAX or not all(type(field) is tuple for field in headers):
        return
    if len(_heads) >= _MEMO_ENTRIES_MAX:
        _heads.clear()
    try:
        whole = f"{text}\r\n\r\n".encode("latin-1")
    except UnicodeEncodeError:
        # Whoever sends it names the field.
        whole = b""
    _heads[(status, *headers)] = text, length, whole


def raw_response_head(status: int, headers: Any) -> Tuple[bytes, int]:
    """Do as `response_head` for ASGI, whose fields are bytes.

    Hop-by-hop fields are dropped instead of refused: ASGI ("Response Start") lets the server override
    Transfer-Encoding, and frameworks send Connection.
    """
    lines, length = raw_fields(headers)
    return _numeric_status(status) + b"".join(lines), length


def raw_fields(headers: Any) -> Tuple[List[bytes], int]:
    """Render fields, each with the line end that comes before it, and return the Content-Length or -1."""
    lines: List[bytes] = []
    length = -1
    for name, value in headers:
        prefix = _raw_prefixes.get(name) if type(name) is bytes else None
        if prefix is None:
            if not isinstance(name, (bytes, bytearray, memoryview)):
                raise InvalidResponse(f"the field name {name!r} is {type(name).__name__}, not bytes")
            prefix = _raw_prefix(bytes(name))
        if not prefix:
            continue
        if type(value) is not bytes:
            if not isinstance(value, (bytes, bytearray, memoryview)):
                raise InvalidResponse(f"the value of the field {name!r} is {type(value).__name__}, not bytes")
            value = bytes(value)
        if prefix is _RAW_CONTENT_LENGTH_PREFIX:
            length = _declared_length(value.decode("latin-1"), length)
        lines.append(prefix + value)
    # One look at the whole: each field brought exactly one line end.
    text = b"".join(lines)
    if text.count(b"\n") != len(lines) or text.count(b"\r") != len(lines) or b"\0" in text:
        raise _blame([(bytes(name).decode("latin-1"), bytes(value).decode("latin-1")) for name, value in headers])
    return lines, length


def encode_head(text: str, headers: List[Tuple[str, str]]) -> bytes:
    """Encode a head in latin-1, or name the field that can't be."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise _blame(headers) from None


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain_page(status: str, text: str, close: bool) -> bytes:
    """Render a whole response of the runtime itself."""
    body = text.encode("utf-8", "backslashreplace")
    connection = "Connection: close\r\n" if close else ""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n"
        f"{connection}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1") + body


def failure_text(request: str) -> str:
    """Return the text of the page for a request that raised an exception, with its name: by that its traceback is found."""
    if not request:
        return "the application failed"
    return f"the application failed in request {request}: `larder scripts` and the log have the traceback"


def has_body(status: str) -> bool:
    """Say whether a response of this status may have a body (RFC 9110, 6.4.1)."""
    return status[:3] not in ("204", "304")


def _status_line(status: str) -> str:
    if not isinstance(status, str):
        raise InvalidResponse(f"the status is {type(status).__name__}, not str")
    if not _STATUS.match(status):
        raise InvalidResponse(f"the status {status!r} is not of the form '200 OK'")
    line = "HTTP/1.1 " + status
    if not line.isascii():
        raise InvalidResponse(f"the status {status!r} is not ASCII")
    if len(_status_lines) < _MEMO_ENTRIES_MAX:
        _status_lines[status] = line
    return line


def _numeric_status(status: int) -> bytes:
    try:
        return _NUMERIC_STATUS_LINES[status]
    except (KeyError, TypeError):
        if not isinstance(status, int) or not 200 <= status <= 999:
            raise InvalidResponse(f"the status {status!r} is not a number from 200 to 999") from None
        return b"HTTP/1.1 %d " % status


_NUMERIC_STATUS_LINES: Dict[int, bytes] = {
    int(status): f"HTTP/1.1 {int(status)} {status.phrase}".encode("ascii") for status in HTTPStatus if status >= 200
}


def _field_prefix(name: str) -> str:
    """Return the line end and name that begin a field's line, or `_DROP` for a hop-by-hop field."""
    if not isinstance(name, str):
        raise InvalidResponse(f"the field name {name!r} is {type(name).__name__}, not str")
    if not _TOKEN.match(name):
        raise InvalidResponse(f"the field name {name!r} is not a token (RFC 9110, 5.6.2)")
    lower = name.lower()
    if lower in _HOP_BY_HOP:
        return _DROP
    prefix = _CONTENT_LENGTH_PREFIX if lower == "content-length" else f"\r\n{name}: "
    if len(_field_prefixes) < _MEMO_ENTRIES_MAX:
        _field_prefixes[name] = prefix
    return prefix


def _raw_prefix(name: bytes) -> bytes:
    prefix = _field_prefix(name.decode("latin-1"))
    raw = _RAW_CONTENT_LENGTH_PREFIX if prefix is _CONTENT_LENGTH_PREFIX else prefix.encode("latin-1")
    if len(_raw_prefixes) < _MEMO_ENTRIES_MAX:
        _raw_prefixes[name] = raw
    return raw


def _declared_length(value: str, earlier: int) -> int:
    if not isinstance(value, str) or not value.isascii() or not value.isdigit() or len(value) > 18:
        raise InvalidResponse(f"the Content-Length {value!r} is not a number")
    if earlier >= 0:
        raise InvalidResponse("several Content-Length fields")
    return int(value)


def _blame(headers: Any) -> InvalidResponse:
    for name, value in headers:
        if any(character in value for character in "\r\n\0"):
            return InvalidResponse(f"the value of the field {name!r} holds CR, LF or NUL")
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            return InvalidResponse(f"the value of the field {name!r} is not latin-1 (PEP 3333, Unicode Issues)")
    return InvalidResponse("the fields hold CR, LF or NUL")
