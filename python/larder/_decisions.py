"""What hooks return: responses, redirects, refusals, passes."""

import re
from base64 import b64encode
from json.encoder import encode_basestring_ascii as quoted
from sys import _getframe
from types import FrameType
from typing import Any, Iterable, List, Mapping, Optional, Tuple, Union
from urllib.parse import quote

from . import _checks

BODY_BYTES_MAX = 700_000
FieldsArgument = Union[Mapping[str, str], Iterable[Tuple[str, str]], None]

_HTML = re.compile(r"(?:\ufeff)?\s*<(?:[a-zA-Z]|!)")
_URL_CHARACTERS = "!#$%&'()*+,-./:;=?@[]_~"
_REDIRECTS = (301, 302, 303, 307, 308)


class Outcome:
    """What a hook returns to end the run of hooks: a `Response` or `larder.pass_()`."""

    __slots__ = ("_frame_file", "_frame_line", "_json")

    _json: str

    def _made_at(self, frame: FrameType) -> None:
        self._frame_file = frame.f_code.co_filename
        self._frame_line = frame.f_lineno


class Pass(Outcome):
    """Go to the origin and don't store the response; see `larder.pass_`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "larder.pass_()"


class Miss(Outcome):
    """Ask the origin although a response is stored; see `larder.miss`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "larder.miss()"


class Response(Outcome):
    """A response that Larder sends in place of one of the origin.

        return larder.Response("come back later", status=503, headers={"retry-after": "60"})

    A `str` is sent in UTF-8. Where `headers` names no content-type, a body has one by its beginning: `text/html` if it
    begins with a tag, a comment or a doctype (`<` and a letter or `!`, after white space), else `text/plain`. So give
    the content-type where the body is made of what clients sent. Bytes that are not UTF-8 have none.

    `headers` is a mapping, or a list of pairs where a name occurs more than once (set-cookie).
    A response does not change, so that one made outside of the hook can be returned again and again.
    """

    __slots__ = ("_body", "_fields", "_status")

    def __init__(self, body: Union[str, bytes] = b"", status: int = 200, headers: FieldsArgument = None) -> None:
        self._made_at(_getframe(1))
        self._status = _checks.status(status)
        self._body, content_type = _encode_body(body)
        self._fields = checked_fields(headers)
        for name, _ in self._fields:
            _checks.changed_field_name(name, "request")
        if content_type and not any(name == "content-type" for name, _ in self._fields):
            self._fields.append(("content-type", content_type))
        fields = ",".join(f"[{quoted(name)},{quoted(value)}]" for name, value in self._fields)
        body64 = b64encode(self._body).decode("ascii")
        self._json = f'"respond":{{"status":{self._status},"reason":"","fields":[{fields}],"body":"{body64}"}}'

    @property
    def status(self) -> int:
        """The status."""
        return self._status

    @property
    def body(self) -> bytes:
        """The body as it is sent."""
        return self._body

    @property
    def headers(self) -> List[Tuple[str, str]]:
        """The fields as pairs, names in lower case."""
        return list(self._fields)

    def __repr__(self) -> str:
        return f"<larder.Response {self._status}, {len(self._body)} bytes>"


def redirect(to: str, status: int = 302) -> Response:
    """Send the client to another URL or path.

        return larder.redirect("/login", 303)

    `status` is 301 or 308 (for good), 302 or 307 (for now), or 303 (continue there with GET).
    Characters that no URL has, such as spaces and umlauts, are encoded.
    """
    if not isinstance(to, str):
        raise TypeError(f"redirect() wants a URL or path as a str, not {_checks.kind_of(to)}")
    if status not in _REDIRECTS:
        raise ValueError(f"redirect() wants a status of {', '.join(map(str, _REDIRECTS))}, not {_checks.shortened(status)}")
    _checks.text(to, "the target of a redirect")
    if not to or any(char in to for char in "\r\n\0"):
        raise ValueError(f"the target of a redirect is empty or has a CR, LF or NUL: {_checks.shortened(to)}")
    response = Response(b"", status, {"location": quote(to, safe=_URL_CHARACTERS)})
    response._made_at(_getframe(1))
    return response


def deny(text: str = "", status: int = 403) -> Response:
    """Refuse the request, with a short text for the client.

        return larder.deny("members only")
    """
    if not isinstance(text, str):
        raise TypeError(f"deny() wants a text as a str, not {_checks.kind_of(text)}")
    if _checks.status(status) < 400:
        raise ValueError(f"deny() wants a status from 400 to 599, not {status}")
    response = Response(text, status, {"content-type": "text/plain; charset=utf-8"} if text else None)
    response._made_at(_getframe(1))
    return response


def pass_() -> Outcome:
    """Go to the origin, and don't store the response.

        if "authorization" in req.headers:
            return larder.pass_()
    """
    decision = Pass()
    decision._json = '"pass":true'
    decision._made_at(_getframe(1))
    return decision


def miss() -> Outcome:
    """Ask the origin although a response is stored, and store what it says. For `found` hooks.

        if found.age > 60 and "x-fresh" in req.headers:
            return larder.miss()
    """
    decision = Miss()
    decision._json = '"miss":true'
    decision._made_at(_getframe(1))
    return decision


def take(stage: str, value: Any) -> Outcome:
    """Return the decision that a returned value stands for. Raise `TypeError` for what may not be returned."""
    if stage == "respond":
        raise TypeError(
            f"a respond hook changes resp.headers and returns None, not {_checks.kind_of(value)}: requests are answered and"
            f" refused in a @larder.request hook"
        )
    if isinstance(value, Miss):
        if stage == "found":
            return value
        raise TypeError(f"larder.miss() is for @larder.found hooks: a {stage} hook has no stored response")
    if isinstance(value, Pass):
        return value
    if stage == "fetched":
        raise TypeError(f"a fetched hook may return None (go on) or larder.pass_() (don't store), not {_checks.kind_of(value)}")
    if isinstance(value, Response):
        return value
    if stage == "page":
        if isinstance(value, (str, bytes)):
            return Response(value)
        raise TypeError(
            f"a page may return a str or bytes, larder.Response(...), larder.redirect(...), larder.deny(...), larder.pass_()"
            f" or None (go on), not {_checks.kind_of(value)}"
        )
    if stage == "found":
        raise TypeError(
            f"a found hook may return None (use it), larder.miss(), larder.pass_(), larder.Response(...), larder.redirect(...)"
            f" or larder.deny(...), not {_checks.kind_of(value)}"
        )
    raise TypeError(
        f"a request hook may return None (go on), larder.Response(...), larder.redirect(...), larder.deny(...) or"
        f" larder.pass_(), not {_checks.kind_of(value)}"
    )


def _encode_body(body: Any) -> Tuple[bytes, Optional[str]]:
    """Return the bytes of a body, and its content-type by its beginning."""
    if isinstance(body, str):
        beginning: Optional[str] = body[:256]
        data = _checks.text(body, "a body").encode("utf-8")
    elif isinstance(body, (bytes, bytearray, memoryview)):
        data = bytes(body)
        try:
            beginning = data.decode("utf-8")[:256]
        except UnicodeDecodeError:
            beginning = None
    else:
        raise TypeError(f"a body has to be a str or bytes, not {_checks.kind_of(body)}")
    if len(data) > BODY_BYTES_MAX:
        raise ValueError(f"a body of {len(data)} bytes is longer than {BODY_BYTES_MAX}: let an origin send it")
    if not data or beginning is None:
        return data, None
    return data, f"text/{'html' if _HTML.match(beginning) else 'plain'}; charset=utf-8"


def checked_fields(headers: FieldsArgument) -> List[Tuple[str, str]]:
    if headers is None:
        return []
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise TypeError("headers has to be a mapping of names to values, or a list of (name, value) pairs")
    return [(_checks.field_name(name), _checks.field_value(name, value)) for name, value in pairs]
