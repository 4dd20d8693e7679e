"""Views of fields and of the query: they note what is read and keep what is changed."""

import re
from functools import lru_cache
from sys import _getframe
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Tuple, TypeVar, Union, overload
from urllib.parse import quote_plus, unquote_to_bytes

from . import _checks

Pairs = Tuple[Tuple[str, str], ...]
FieldList = Tuple[Pairs, Dict[str, str]]
"""Fields in their order, and their values by their names."""
Mark = Callable[[FrameType], None]
"""Note the line of a hook that changes something, or refuse the change."""
Default = TypeVar("Default")

_NAMES_MAX = 4096


class _Notes(Dict[str, Tuple[str, str]]):
    """Names of fields as hooks spell them: the name in lower case, and the note that it was read."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def __missing__(self, name: str) -> Tuple[str, str]:
        if not isinstance(name, str):
            raise TypeError(f"a field name has to be a str, not {_checks.kind_of(name)}")
        if not name.isascii():
            raise ValueError(f"{_checks.shortened(name)} is no field name: it has characters outside ASCII")
        if len(self) >= _NAMES_MAX:
            self.clear()
        lower = name.lower()
        found = self[name] = (lower, self._prefix + lower)
        return found


REQUEST_NOTES = _Notes("field:")
RESPONSE_NOTES = _Notes("response:")


def _joined(name: str, values: List[str]) -> str:
    if len(values) == 1 or name == "set-cookie":
        return values[0]
    return ("; " if name == "cookie" else ", ").join(values)


def field_list(pairs: Pairs) -> FieldList:
    """Make the index of fields. It does not change, so that calls with the same fields share it."""
    index = dict(pairs)
    if len(index) < len(pairs):
        values: Dict[str, List[str]] = {}
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        index = {name: _joined(name, found) for name, found in values.items()}
    return pairs, index


class NotCopied:
    """What is read from a copy would not be noted, so that there are no copies."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__} can't be copied or pickled: take the values that you need")


class Headers(NotCopied):
    """The fields of a request or response. Names are compared without regard to case.

        plan = req.headers.get("x-plan", "free")
        req.headers["x-country"] = "at"
        del resp.headers["server"]

    A field that occurs more than once has its values joined by `, ` (those of cookie by `; `), as RFC 9110 says that
    they mean the same. Values of set-cookie can't be joined: `get` returns the first one, `getall` returns all.
    """

    __slots__ = ("_changed", "_index", "_mark", "_notes", "_pairs", "_reads", "_stage")

    def __init__(self, fields: FieldList, notes: _Notes, reads: Dict[str, None], mark: Mark, stage: str) -> None:
        self._pairs, self._index = fields
        self._stage = stage
        self._notes = notes
        self._reads = reads
        self._mark = mark
        self._changed: Optional[Dict[str, List[str]]] = None
        """The values of fields that were set; none where the field was removed."""

    @overload
    def get(self, name: str) -> Optional[str]: ...
    @overload
    def get(self, name: str, default: Default) -> Union[str, Default]: ...
    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, or `default` where the message has none."""
        lower, note = self._notes[name]
        changed = self._changed
        if changed is not None and lower in changed:
            values = changed[lower]
            return _joined(lower, values) if values else default
        self._reads[note] = None
        return self._index.get(lower, default)

    def getall(self, name: str) -> List[str]:
        """Return all values of a field in their order; none where the message has no such field."""
        lower, note = self._notes[name]
        if self._changed is not None and lower in self._changed:
            return list(self._changed[lower])
        self._reads[note] = None
        return [value for found, value in self._pairs if found == lower]

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def set(self, name: str, value: str) -> None:
        """Give a field this value in place of all that it has."""
        self._mark(_getframe(1))
        self._set(name, value)

    def __setitem__(self, name: str, value: str) -> None:
        self._mark(_getframe(1))
        self._set(name, value)

    def add(self, name: str, value: str) -> None:
        """Add a value to those that a field has."""
        self._mark(_getframe(1))
        lower = _checks.changed_field_name(name, self._stage)
        values = self.getall(lower) + [_checks.field_value(lower, value)]
        self._change(lower, values)

    def remove(self, name: str) -> None:
        """Remove a field. It may be absent. `del headers[name]` is the same."""
        self._mark(_getframe(1))
        self._change(_checks.changed_field_name(name, self._stage), [])

    def __delitem__(self, name: str) -> None:
        self._mark(_getframe(1))
        self._change(_checks.changed_field_name(name, self._stage), [])

    def items(self) -> List[Tuple[str, str]]:
        """Return all fields as pairs, names in lower case. A name may occur more than once."""
        self._reads[self._notes["*"][1]] = None
        changed = self._changed
        if changed is None:
            return list(self._pairs)
        kept = [pair for pair in self._pairs if pair[0] not in changed]
        return kept + [(name, value) for name, values in changed.items() for value in values]

    def keys(self) -> List[str]:
        """Return the names of all fields, in lower case, each once."""
        return list(dict(self.items()))

    def values(self) -> List[str]:
        """Return the values of all fields, as `items` has them."""
        return [value for _, value in self.items()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Headers):
            return self.items() == other.items()
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Headers({self.items()!r})"

    def _set(self, name: str, value: str) -> None:
        lower = _checks.changed_field_name(name, self._stage)
        self._change(lower, [_checks.field_value(lower, value)])

    def _change(self, lower: str, values: List[str]) -> None:
        if self._changed is None:
            self._changed = {}
        self._changed[lower] = values


class Query(NotCopied):
    """The parameters of the URL. Those that are not touched keep their order and their bytes.

        page = req.query.get("page", "1")
        req.query.drop("utm_*", "fbclid")
        req.query.sort()

    Names and values are decoded (`%C3%A9` and `+`); what is set is encoded.
    """

    __slots__ = ("_mark", "_original", "_parts", "_read", "_replaced")

    def __init__(self, original: Optional[str], read: Callable[[], None], mark: Mark) -> None:
        self._original = original
        self._read = read
        self._mark = mark
        self._parts: Optional[List[str]] = None
        """The raw parameters as soon as something was changed."""
        self._replaced = False
        """Whether all parameters were removed without regard to what they were."""

    @overload
    def get(self, name: str) -> Optional[str]: ...
    @overload
    def get(self, name: str, default: Default) -> Union[str, Default]: ...
    def get(self, name: str, default: Any = None) -> Any:
        """Return the first value of a parameter, or `default` where there is none. One without `=` has the value ""."""
        _wants_str(name)
        for part in self._raw():
            found, _, value = part.partition("=")
            if part and _decoded(found) == name:
                return _decoded(value)
        return default

    def getall(self, name: str) -> List[str]:
        """Return all values of a parameter in their order."""
        _wants_str(name)
        return [value for found, value in self.items() if found == name]

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def set(self, name: str, value: str) -> None:
        """Give a parameter this value: in its first place, without its other places; at the end where it is new."""
        self._mark(_getframe(1))
        self._set(name, value)

    def __setitem__(self, name: str, value: str) -> None:
        self._mark(_getframe(1))
        self._set(name, value)

    def add(self, name: str, value: str) -> None:
        """Add a parameter at the end, whether there is one of that name or not."""
        self._mark(_getframe(1))
        part = _encoded(name, value)
        self._parts = [*self._raw(), part]

    def drop(self, *patterns: str) -> None:
        """Remove the parameters with these names. A `*` stands for any text: `drop("utm_*", "fbclid")`."""
        self._mark(_getframe(1))
        self._drop(patterns)

    def __delitem__(self, name: str) -> None:
        self._mark(_getframe(1))
        _wants_str(name)
        self._keep(lambda found: found != name)

    def sort(self) -> None:
        """Order the parameters by name, so that URLs that differ in their order are one. Values of one name keep theirs."""
        self._mark(_getframe(1))
        self._parts = sorted(filter(None, self._raw()), key=_name_of)

    def clear(self) -> None:
        """Remove all parameters, and the `?`."""
        self._mark(_getframe(1))
        self._parts = []
        self._replaced = True

    def items(self) -> List[Tuple[str, str]]:
        """Return all parameters as pairs. A name may occur more than once."""
        pairs = []
        for part in self._raw():
            if part:
                name, _, value = part.partition("=")
                pairs.append((_decoded(name), _decoded(value)))
        return pairs

    def keys(self) -> List[str]:
        """Return the names of all parameters, each once."""
        return list(dict(self.items()))

    def values(self) -> List[str]:
        """Return the values of all parameters, as `items` has them."""
        return [value for _, value in self.items()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Query):
            return self.items() == other.items()
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self._text() or ""

    def __repr__(self) -> str:
        return f"Query({str(self)!r})"

    def _raw(self) -> List[str]:
        if self._parts is not None:
            return self._parts
        self._read()
        return self._original.split("&") if self._original else []

    def _text(self) -> Optional[str]:
        if self._parts is not None:
            return "&".join(self._parts) if any(self._parts) else None
        self._read()
        return self._original

    def _changed(self) -> bool:
        """Say whether Larder has to be told of another query. To know that is to have read the original."""
        return self._parts is not None and (self._replaced or self._text() != self._original)

    def _replace(self, query: Optional[str]) -> None:
        """Put another query in the place of the whole."""
        self._parts = query.split("&") if query else []
        self._replaced = True

    def _set(self, name: str, value: str) -> None:
        part = _encoded(name, value)
        parts: List[str] = []
        for raw in self._raw():
            if not raw or _name_of(raw) != name:
                parts.append(raw)
            elif part:
                parts.append(part)
                part = ""
        if part:
            parts.append(part)
        self._parts = parts

    def _drop(self, patterns: Tuple[str, ...]) -> None:
        for pattern in patterns:
            _wants_str(pattern)
        if not patterns:
            raise TypeError("drop() wants the names of parameters: drop('utm_*', 'fbclid'); clear() removes all")
        matches = _name_patterns(patterns)
        self._keep(lambda found: not matches(found))

    def _keep(self, wanted: Callable[[str], object]) -> None:
        raw = self._raw()
        parts = [part for part in raw if not part or wanted(_name_of(part))]
        if len(parts) < len(raw):
            self._parts = parts


def _wants_str(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a parameter has to be a str, not {_checks.kind_of(name)}")


@lru_cache(maxsize=256)
def _name_patterns(patterns: Tuple[str, ...]) -> Callable[[str], object]:
    texts = (".*".join(map(re.escape, re.split(r"\*+", pattern))) for pattern in patterns)
    return re.compile("|".join(texts), re.DOTALL).fullmatch


def _decoded(raw: str) -> str:
    if "%" not in raw and "+" not in raw and raw.isascii():
        return raw
    return unquote_to_bytes(raw.replace("+", " ").encode("latin-1", "replace")).decode("utf-8", "replace")


def _name_of(part: str) -> str:
    return _decoded(part.partition("=")[0])


def _encoded(name: str, value: str) -> str:
    _checks.text(name, "the name of a parameter")
    _checks.text(value, f"the value of the parameter {name!r}")
    if not name:
        raise ValueError("the name of a parameter is empty")
    return f"{quote_plus(name)}={quote_plus(value)}"


class AmbiguousCookie(BaseException):
    """A hook looks at a cookie that the request has twice, with different values. Larder answers such a request 400.

    It is no `Exception`, so that a hook which catches those does not decide by either value.
    """


class Cookies(NotCopied):
    """The cookies of a request, by their names.

        session = req.cookies.get("session")

    Readers disagree about a name that occurs twice with different values: some take the first one, others the last. A hook
    that looks at such a cookie ends, and the request is answered 400. `getall` gives all values; `in` can be asked, too.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Dict[str, Tuple[str, ...]]) -> None:
        self._values = values

    @overload
    def get(self, name: str) -> Optional[str]: ...
    @overload
    def get(self, name: str, default: Default) -> Union[str, Default]: ...
    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a cookie, or `default` where the request has none of that name."""
        values = self._values.get(name)
        if values is None:
            return default
        if len(values) > 1:
            raise AmbiguousCookie(name)
        return values[0]

    def getall(self, name: str) -> List[str]:
        """Return all values of a cookie that differ, in their order; none where the request has no such cookie."""
        return list(self._values.get(name, ()))

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def items(self) -> List[Tuple[str, str]]:
        """Return all cookies as pairs, each name once."""
        return [(name, self[name]) for name in self._values]

    def keys(self) -> List[str]:
        """Return the names of all cookies, each once."""
        return list(self._values)

    def values(self) -> List[str]:
        """Return the values of all cookies, as `items` has them."""
        return [value for _, value in self.items()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Cookies):
            return self._values == other._values
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Cookies({self._values!r})"


@lru_cache(maxsize=128)
def parse_cookies(text: str) -> Dict[str, Tuple[str, ...]]:
    """Parse a cookie field: the values of each name that differ, in their order."""
    cookies: Dict[str, Tuple[str, ...]] = {}
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if equals:
            name, value = name.strip(" \t"), value.strip(" \t")
            values = cookies.get(name, ())
            if value not in values:
                cookies[name] = (*values, value)
    return cookies
