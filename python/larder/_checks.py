"""Checks of what hooks say, before it goes to Larder: each error names what was expected and what to write instead."""

import re
from typing import Any, Optional, Tuple, Union

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_VALUE = re.compile(r"[\r\n\0]")
_HOST = re.compile(r"[A-Za-z0-9_~!$&'()*+,;=.-]+|\[[0-9A-Fa-f:.]+\]")
_URL = re.compile(r"(https?)://([^/?#:\[\]@]+|\[[^\]]*\])(?::([0-9]{1,5}))?(/[^?#]*)?(?:\?([^#]*))?", re.IGNORECASE)
_PATH = re.compile(r"/[!-~]*")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", re.ASCII)
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION_MS_MAX = 36_525 * 86_400_000
"""A hundred years."""

DEFAULT_PORTS = {"http": 80, "https": 443}

Duration = Union[int, float, str]
"""Seconds as a number, or a text such as `"30s"`, `"5m"`, `"2h"`, `"1d"`."""


def kind_of(value: Any) -> str:
    """Name the type of a value in a sentence."""
    return "None" if value is None else f"{type(value).__name__} {shortened(value)}"


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def field_name(name: Any) -> str:
    """Return the name of a field in lower case."""
    if not isinstance(name, str):
        raise TypeError(f"a field name has to be a str, not {kind_of(name)}")
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{shortened(name)} is no field name: letters, digits and any of !#$%&'*+-.^_`|~ make one")
    return name.lower()


_OF_CONNECTION = frozenset(
    "connection content-length content-range expect host if-match if-modified-since if-none-match if-range"
    " if-unmodified-since keep-alive max-forwards proxy-authenticate proxy-authorization proxy-connection range te trailer"
    " transfer-encoding upgrade via age".split()
)
_OF_CONTENT = frozenset(
    "accept-ranges cache-status content-digest content-encoding content-md5 date etag last-modified repr-digest".split()
)


def changed_field_name(name: Any, stage: str) -> str:
    """Return the name, in lower case, of a field that a hook of this stage may change. Larder checks it once more."""
    lower = field_name(name)
    if lower in _OF_CONNECTION:
        raise ValueError(f"the field {lower!r} is Larder's: it belongs to the connection, to framing or to a condition")
    if stage == "respond" and lower in _OF_CONTENT:
        raise ValueError(
            f"the field {lower!r} is that of the stored response, whose body and conditions go by it: change it in a"
            f" @larder.fetched hook, before it is stored"
        )
    return lower


def field_value(name: str, value: Any) -> str:
    if type(value) is not str and not isinstance(value, str):
        raise TypeError(f"the value of the field {name!r} has to be a str, not {kind_of(value)}: write str(...)")
    if _NOT_IN_VALUE.search(value):
        raise ValueError(f"the value of the field {name!r} has a CR, LF or NUL, which no field can carry: {shortened(value)}")
    if not value.isascii():
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise ValueError(
                f"the value of the field {name!r} has characters outside latin-1: {shortened(value)};"
                f" encode them, for example by urllib.parse.quote(...)"
            ) from None
    return value


def text(value: Any, what: str) -> str:
    """Return a text that has an encoding in UTF-8."""
    if type(value) is not str and not isinstance(value, str):
        raise TypeError(f"{what} has to be a str, not {kind_of(value)}")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(f"{what} has characters that UTF-8 can't encode: {shortened(value)}") from None
    return value


def path(value: Any) -> str:
    """Return the path of a URL as it goes over the wire."""
    if not isinstance(value, str):
        raise TypeError(f"a path has to be a str, not {kind_of(value)}")
    if "?" in value or "#" in value:
        raise ValueError(f"the path {shortened(value)} has a '?' or '#': write %3F or %23; parameters are in req.query")
    if not _PATH.fullmatch(value):
        raise ValueError(
            f"{shortened(value)} is no path: it has to begin with '/' and be of visible ASCII characters;"
            f" urllib.parse.quote(...) encodes the others"
        )
    return value


def scheme(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a scheme has to be a str, not {kind_of(value)}")
    if value not in DEFAULT_PORTS:
        raise ValueError(f"{shortened(value)} is no scheme: there are 'http' and 'https'")
    return value


def host(value: Any) -> str:
    """Return the host of a URL in lower case."""
    if not isinstance(value, str):
        raise TypeError(f"a host has to be a str, not {kind_of(value)}")
    if not _HOST.fullmatch(value) or len(value) > 255:
        raise ValueError(
            f"{shortened(value)} is no host: write it as mirror.example or [::1], without scheme and port (req.port is for that);"
            f" names of other alphabets as xn--..."
        )
    return value.lower()


def port(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a port has to be an int, not {kind_of(value)}")
    if not 1 <= value <= 65535:
        raise ValueError(f"{value} is no port: one is from 1 to 65535")
    return int(value)


def url(value: Any) -> Tuple[str, str, int, str, Optional[str]]:
    """Return scheme, host, port, path and query of a whole URL."""
    if not isinstance(value, str):
        raise TypeError(f"a URL has to be a str, not {kind_of(value)}")
    match = _URL.fullmatch(value)
    if not match:
        raise ValueError(f"{shortened(value)} is no URL: write it as https://mirror.example/path?query, without user and fragment")
    found = match[1].lower()
    number = int(match[3]) if match[3] else DEFAULT_PORTS[found]
    return found, host(match[2]), port(number), path(match[4] or "/"), query(match[5])


def query(value: Optional[str]) -> Optional[str]:
    if value is not None and not re.fullmatch("[!-~]*", value):
        raise ValueError(f"the query {shortened(value)} is not of visible ASCII characters: urllib.parse.quote(...) encodes the others")
    return value


def tag(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a tag has to be a str, not {kind_of(value)}")
    if not value or not value.isascii() or not value.isprintable() or " " in value or "," in value:
        raise ValueError(f"{shortened(value)} is no tag: visible ASCII characters without spaces and commas make one")
    return value


def status(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a status has to be an int, not {kind_of(value)}")
    if not 200 <= value <= 599:
        raise ValueError(f"the status {int(value)} is not from 200 to 599")
    return int(value)


def milliseconds(value: Any, what: str) -> int:
    """Return a duration in milliseconds."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if not match:
            raise ValueError(
                f"{what} is {shortened(value)}: write seconds as a number, or a text such as '30s', '5m', '2h', '1d'"
            )
        amount = float(match[1]) * _UNITS[match[2]]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        amount = value * 1000.0 if -1e9 < value < 1e10 else float("nan")
    else:
        raise TypeError(f"{what} has to be seconds as a number, or a text such as '30s', not {kind_of(value)}")
    if not 0 <= amount <= _DURATION_MS_MAX:
        raise ValueError(f"{what} is {shortened(value)}: it has to be from 0 to 100 years")
    return round(amount)
