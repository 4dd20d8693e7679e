"""The decorators that define hooks, and their filters."""

import difflib
import inspect
import re
import sys
from contextlib import contextmanager
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple, Type, TypeVar, Union, overload

from . import _checks
from ._checks import Duration

HookFunction = TypeVar("HookFunction", bound=Callable[..., Any])
Texts = Union[str, Sequence[str], None]
Statuses = Union[int, str, Sequence[Union[int, str]], None]

_HOST = re.compile(r"(?:\*\.)?(?:[A-Za-z0-9_~!$&'()+,;=.-]+|\[[0-9A-Fa-f:.]+\])")
_SEGMENT = re.compile(r"(\*|\{hex\}|\{digit\})")
_WILDCARDS = {"*": "[^/]*", "{digit}": "[0-9]", "{hex}": "[0-9A-Fa-f]{40,128}(?![0-9A-Fa-f])"}
_PATH_LENGTH_MAX = 2048
_FILTERS = ("host", "path", "method", "status", "field", "remember")
_OF_ANSWERS = {"fetched": "(req, resp)", "respond": "(req, resp)", "found": "(req, found)"}
"""The stages that have a response, and the parameters of their hooks."""


class Hook:
    """A function that Larder calls at a stage, for the requests that its filters let through."""

    __slots__ = (
        "field_names", "file", "function", "hosts", "line", "methods", "module", "name", "paths", "remember_ms",
        "stage", "statuses",
    )  # fmt: skip

    def __init__(self, stage: str, function: Callable[..., Any], filters: Dict[str, Any]) -> None:
        inner = inspect.unwrap(function)
        code = getattr(inner, "__code__", None)
        self.stage = stage
        self.function = function
        self.name: str = getattr(inner, "__name__", type(inner).__name__)
        self.module: str = getattr(inner, "__module__", "")
        self.file: str = code.co_filename if code else filters["place"][0]
        self.line: int = code.co_firstlineno if code else filters["place"][1]
        self.hosts: List[str] = filters["host"]
        self.paths: List[str] = filters["path"]
        self.methods: List[str] = filters["method"]
        self.statuses: List[int] = filters["status"]
        self.field_names: List[str] = filters["field"]
        self.remember_ms: Optional[int] = filters["remember"]

    def is_of(self, stage: str) -> bool:
        """Whether a call at this stage may name it: a page is a request hook for one path, too."""
        return self.stage == stage or (self.stage == "page" and stage == "request")

    def describe(self) -> Dict[str, Any]:
        """Describe the hook as the ready message does."""
        return {
            "stage": self.stage,
            "name": self.name,
            "file": self.file,
            "line": self.line,
            "hosts": self.hosts,
            "paths": self.paths,
            "methods": self.methods,
            "statuses": self.statuses,
            "fields": self.field_names,
            "remember_ms": self.remember_ms,
        }

    def matches(self, method: str, host: str, path: Optional[str], fields: Sequence[str], status: int) -> bool:
        """Say whether the filters let a request through, as Larder decides it. A CONNECT has no path."""
        return (
            (not self.methods or method in self.methods)
            and (not self.hosts or any(_host_matches(pattern, host) for pattern in self.hosts))
            and (not self.paths or (path is not None and any(path_matches(pattern, path) for pattern in self.paths)))
            and (not self.field_names or any(name in fields for name in self.field_names))
            and (not self.statuses or status in self.statuses)
        )


registered: List[Hook] = []
"""The hooks in the order of their definition."""


@contextmanager
def collected() -> Iterator[List[Hook]]:
    """Collect the hooks that are defined in the block, apart from those that were defined before."""
    before = registered[:]
    registered.clear()
    hooks: List[Hook] = []
    try:
        yield hooks
    finally:
        hooks += registered
        registered[:] = before


def hooks_of(function: Any) -> List[Hook]:
    """Return the hooks that a function was made by decorators."""
    return [hook for hook in registered if hook.function is function]


@overload
def request(hook: HookFunction, /) -> HookFunction: ...
@overload
def request(
    *, host: Texts = None, path: Texts = None, method: Texts = None, field: Texts = None, remember: Optional[Duration] = None
) -> Callable[[HookFunction], HookFunction]: ...
def request(hook: Any = None, /, **filters: Any) -> Any:
    """Define a hook that runs before the response is looked up in the cache.

        @larder.request(host="shop.example", path="/cart/*", remember="60s")
        def cart(req):
            if "session" not in req.cookies:
                return larder.redirect("/login", 303)
            req.query.drop("utm_*")
            req.key.add(req.headers.get("x-plan", "free"))

    The hook may change the request. It returns None to go on, or a decision that ends the run of hooks:
    `larder.Response(...)`, `larder.redirect(...)`, `larder.deny(...)` or `larder.pass_()`.

    Filters, each a text or a list of texts of which one has to match; without any the hook runs for each request:

    - `host`: `www.example.org`, or `*.example.org` for all names below.
    - `path`: a pattern, in which `*` is any text within one segment and `**` any number of segments.
    - `method`: `GET`.
    - `field`: the name of a field that the request has to have.

    With `remember` Larder keeps the decision for that long, and uses it for other requests for which everything that the
    hook read has the same values. Leave it out where the hook depends on something else: the time, a file, chance.

    An `async def` runs to its end before the next call is looked at.
    """
    return _decorator("request", hook, filters, sys._getframe(1))


@overload
def page(
    path: Union[str, Sequence[str]],
    /,
    *,
    host: Texts = None,
    method: Texts = None,
    field: Texts = None,
    remember: Optional[Duration] = None,
) -> Callable[[HookFunction], HookFunction]: ...
@overload
def page(
    *,
    path: Union[str, Sequence[str]],
    host: Texts = None,
    method: Texts = None,
    field: Texts = None,
    remember: Optional[Duration] = None,
) -> Callable[[HookFunction], HookFunction]: ...
def page(path: Any = None, /, **filters: Any) -> Any:
    """Define a hook that makes the response of a path itself, without an origin.

        @larder.page("/hello")
        def hello(req):
            return "Hello, World!"

    A `str` or `bytes` is sent with status 200, as `text/html` if it begins with a tag, a comment or a doctype (`<` and a
    letter or `!`, after white space), else as `text/plain`. A `larder.Response(...)` says everything itself.
    None leaves the request to the origin. The filters are those of `larder.request`.
    """
    frame = sys._getframe(1)
    if path is None:
        path = filters.get("path")
    if path is None or callable(path):
        _refuse(TypeError, frame, "@larder.page needs a path: write @larder.page('/hello')")
    return _decorator("page", None, {**filters, "path": path}, frame)


@overload
def fetched(hook: HookFunction, /) -> HookFunction: ...
@overload
def fetched(
    *,
    host: Texts = None,
    path: Texts = None,
    method: Texts = None,
    status: Statuses = None,
    field: Texts = None,
    remember: Optional[Duration] = None,
) -> Callable[[HookFunction], HookFunction]: ...
def fetched(hook: Any = None, /, **filters: Any) -> Any:
    """Define a hook that runs when the head of a response came from the origin, before it is stored.

        @larder.fetched(status=200, path="/api/*")
        def api(req, resp):
            resp.ttl, resp.grace = 30, "5m"
            resp.tags.add("api")

    It may change the response, and returns None, or `larder.pass_()` so that the response is not stored.
    The filters are those of `larder.request`, and `status`: a status or a list of them.
    """
    return _decorator("fetched", hook, filters, sys._getframe(1))


@overload
def found(hook: HookFunction, /) -> HookFunction: ...
@overload
def found(
    *,
    host: Texts = None,
    path: Texts = None,
    method: Texts = None,
    status: Statuses = None,
    field: Texts = None,
    remember: Optional[Duration] = None,
) -> Callable[[HookFunction], HookFunction]: ...
def found(hook: Any = None, /, **filters: Any) -> Any:
    """Define a hook that runs when a stored response is about to be used.

        @larder.found(path="/news/*")
        def news(req, found):
            if found.age > 60 and "x-fresh" in req.headers:
                return larder.miss()

    It returns None to use the response, `larder.miss()` to ask the origin and store what it says, `larder.pass_()` to ask the
    origin for this client alone, or a `larder.Response(...)`, `larder.redirect(...)`, `larder.deny(...)`.
    It does not run where nothing is stored, nor for a request that waits for another's: who may have what is decided in a
    `larder.request` hook. The filters are those of `larder.fetched`.
    """
    return _decorator("found", hook, filters, sys._getframe(1))


@overload
def respond(hook: HookFunction, /) -> HookFunction: ...
@overload
def respond(
    *,
    host: Texts = None,
    path: Texts = None,
    method: Texts = None,
    status: Statuses = None,
    field: Texts = None,
    remember: Optional[Duration] = None,
) -> Callable[[HookFunction], HookFunction]: ...
def respond(hook: Any = None, /, **filters: Any) -> Any:
    """Define a hook that runs before an answer goes to its client, from the store or from the origin.

        @larder.respond(path="/account/*")
        def stamp(req, resp):
            resp.headers["x-served-for"] = req.client
            del resp.headers["server"]

    It may change the fields for this one client, and returns None. The stored response stays as it is, and clients that wait
    for one response get their own fields each. It does not run for pages of Larder's own, nor for what other hooks answer.
    The filters are those of `larder.fetched`; `status` is that of the response, 200 also where a part of it is sent.
    """
    return _decorator("respond", hook, filters, sys._getframe(1))


def _decorator(stage: str, hook: Any, filters: Dict[str, Any], frame: FrameType) -> Any:
    parsed = _parse_filters(stage, filters, frame)

    def define(function: HookFunction) -> HookFunction:
        _check_function(stage, function, frame)
        registered.append(Hook(stage, function, parsed))
        return function

    if hook is None:
        return define
    if isinstance(hook, (str, list, tuple)):
        _refuse(TypeError, frame, f"filters have names: write @larder.{stage}(path={_checks.shortened(hook)})")
    return define(hook)


def _check_function(stage: str, function: Any, frame: FrameType) -> None:
    wanted = _OF_ANSWERS.get(stage, "(req)")
    if not callable(function):
        _refuse(TypeError, frame, f"@larder.{stage} stands before a function, not before {_checks.kind_of(function)}")
    if isinstance(function, type):
        _refuse(TypeError, frame, f"@larder.{stage} stands before a function, not before a class")
    inner = inspect.unwrap(function)
    name = getattr(inner, "__name__", "the hook")
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        _refuse(TypeError, frame, f"{name} has a `yield`: a hook returns its decision, and one response body as a whole")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*([None] * (2 if stage in _OF_ANSWERS else 1)))
    except TypeError:
        _refuse(TypeError, frame, f"{name}{signature} can't be called as a {stage} hook: write def {name}{wanted}")


def _parse_filters(stage: str, filters: Dict[str, Any], frame: FrameType) -> Dict[str, Any]:
    for name in filters:
        if name not in _FILTERS:
            close = difflib.get_close_matches(name, _FILTERS)
            known = close[0] if close else ", ".join(_FILTERS)
            _refuse(TypeError, frame, f"@larder.{stage} has no filter {name!r}: there is {known}")
        if name == "status" and stage not in _OF_ANSWERS:
            _refuse(TypeError, frame, f"a {stage} hook runs before there is a status: status= is for @larder.fetched")

    def each(name: str, parse: Callable[[Any], Any], kinds: Tuple[Type[Any], ...] = (str,)) -> List[Any]:
        value = filters.get(name)
        if value is None:
            return []
        items = [value] if isinstance(value, kinds) else value
        if not isinstance(items, (list, tuple, set, frozenset)) or not all(isinstance(item, kinds) for item in items):
            wanted = "status or a list of statuses" if name == "status" else "str or a list of them"
            _refuse(TypeError, frame, f"{name}= wants a {wanted}, not {_checks.kind_of(value)}")
        if not items:
            _refuse(ValueError, frame, f"{name}= is empty, so that nothing would match: leave it out to match everything")
        try:
            return [parse(item) for item in items]
        except (TypeError, ValueError) as error:
            _refuse(type(error), frame, f"{name}=: {error}")

    remember = filters.get("remember")
    try:
        remember_ms = None if remember is None else _checks.milliseconds(remember, "remember")
    except (TypeError, ValueError) as error:
        _refuse(type(error), frame, str(error))
    return {
        "host": each("host", _host_pattern),
        "path": each("path", _path_pattern),
        "method": each("method", lambda text: _checks.field_name(text).upper()),
        "status": each("status", _status, (int, str)),
        "field": each("field", _checks.field_name),
        "remember": remember_ms,
        "place": (frame.f_code.co_filename, frame.f_lineno),
    }


def _refuse(kind: Type[Exception], frame: FrameType, message: str) -> NoReturn:
    raise kind(f"{frame.f_code.co_filename}:{frame.f_lineno}: {message}") from None


def _status(value: Union[int, str]) -> int:
    return _checks.status(int(value) if isinstance(value, str) and re.fullmatch("[0-9]{3}", value) else value)


def _host_pattern(text: str) -> str:
    if text == "*":
        return text
    if not _HOST.fullmatch(text):
        raise ValueError(
            f"{_checks.shortened(text)} is no host: write it as www.example.org or *.example.org, without scheme and port;"
            f" names of other alphabets as xn--..."
        )
    return text.lower().rstrip(".")


def _host_matches(pattern: str, host: str) -> bool:
    host = host.lower().rstrip(".")
    if pattern.startswith("*."):
        return len(host) > len(pattern) - 1 and host.endswith(pattern[1:])
    return pattern in ("*", host)


def _path_pattern(text: str) -> str:
    if not re.fullmatch("/[!-~]*", text) or "?" in text or "#" in text:
        raise ValueError(
            f"{_checks.shortened(text)} is no pattern of a path: it has to begin with '/', be of visible ASCII characters"
            f" as they are in a URL, and have no query"
        )
    for segment in text[1:].split("/"):
        rest = _SEGMENT.sub("", segment)
        if segment != "**" and ("**" in segment or "{" in rest or "}" in rest):
            raise ValueError(
                f"{text!r} is no pattern of a path: '*' is any text in one segment, a segment '**' is any number of segments"
            )
    return text


def path_matches(pattern: str, path: str) -> bool:
    """Say whether a path, without its query, has the form of a pattern."""
    expression = ""
    for segment in pattern[1:].split("/"):
        if segment == "**":
            expression += "(?:/[^/]*)*"
        else:
            expression += "/" + "".join(_WILDCARDS.get(part) or re.escape(part) for part in _SEGMENT.split(segment))
    return len(path) <= _PATH_LENGTH_MAX and re.fullmatch(expression, path, re.DOTALL) is not None
