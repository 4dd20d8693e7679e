"""The objects that hooks get: `Request`, and the `ResponseHead` that those of answers share."""

from json.encoder import encode_basestring_ascii as quoted
from sys import _getframe
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Dict, List, Optional, Tuple, Union

from . import _checks
from ._checks import DEFAULT_PORTS, Duration
from ._views import REQUEST_NOTES, RESPONSE_NOTES, Cookies, FieldList, Headers, Mark, NotCopied, Query, parse_cookies

if TYPE_CHECKING:
    from ._answers import Answer

RequestFacts = Tuple[str, str, str, int, str, FieldList]
"""The facts that requests of one client have in common: method, scheme, host, port, client, fields."""
NO_FIELDS: FieldList = ((), {})


class Key(NotCopied):
    """Texts that are added to the cache key: responses to requests with other texts are stored apart."""

    __slots__ = ("_request", "_texts")

    def __init__(self, request: "Request") -> None:
        self._request = request
        self._texts: List[str] = []

    def add(self, text: str) -> None:
        """Add a text to the cache key.

        req.key.add(req.headers.get("x-plan", "free"))
        """
        self._request._mark_request(_getframe(1))
        self._texts.append(_checks.text(text, "a part of the key"))


class Url(NotCopied):
    """The URL of a request. `str()` of it is the whole URL.

    Its parts may be set as those of the request: `req.url.path = "/"` is `req.path = "/"`.
    """

    __slots__ = ("_request",)

    def __init__(self, request: "Request") -> None:
        self._request = request

    @property
    def scheme(self) -> str:
        """The scheme, as that of the request."""
        return self._request.scheme

    @scheme.setter
    def scheme(self, scheme: str) -> None:
        self._request._mark_request(_getframe(1))
        self._request._set_scheme(scheme)

    @property
    def host(self) -> str:
        """The host, as that of the request."""
        return self._request.host

    @host.setter
    def host(self, host: str) -> None:
        self._request._mark_request(_getframe(1))
        self._request._set_host(host)

    @property
    def port(self) -> int:
        """The port, as that of the request."""
        return self._request.port

    @port.setter
    def port(self, port: int) -> None:
        self._request._mark_request(_getframe(1))
        self._request._set_port(port)

    @property
    def path(self) -> str:
        """The path, as that of the request."""
        return self._request.path

    @path.setter
    def path(self, path: str) -> None:
        self._request._mark_request(_getframe(1))
        self._request._set_path(path)

    @property
    def query(self) -> Query:
        """The parameters, as those of the request."""
        return self._request.query

    def __str__(self) -> str:
        request = self._request
        scheme, host, port = request.scheme, request.host, request.port
        authority = host if port == DEFAULT_PORTS.get(scheme) else f"{host}:{port}"
        query = request.query._text()
        return f"{scheme}://{authority}{request.path}" + ("" if query is None else f"?{query}")

    def __repr__(self) -> str:
        return f"Url({str(self)!r})"


class Request(NotCopied):
    """A request on its way through Larder.

    What a hook reads is noted, so that Larder can keep the decision for requests with the same values (`remember`).
    Hooks of the stages `request` and `page` may change it; those of later stages see it as it was sent.
    """

    __slots__ = (
        "_decided_by", "_facts", "_file", "_headers", "_key", "_line", "_name", "_new_origin", "_new_path", "_new_route", "_origin_by",
        "_path", "_path_by", "_query", "_query_view", "_reads", "_response", "_response_fields", "_route_by", "_running", "_stage",
        "_status",
    )  # fmt: skip

    _path_by: Tuple[int, int]
    """The hook that set the path, and its line: Larder may find that it leads nowhere."""
    _origin_by: Tuple[int, int]
    _route_by: Tuple[int, int]

    def __init__(
        self,
        stage: str,
        target: Tuple[str, str, Optional[str]],
        facts: RequestFacts,
        status: int = 0,
        response_fields: FieldList = NO_FIELDS,
    ) -> None:
        self._stage = stage
        self._name, self._path, self._query = target
        self._facts = facts
        self._status = status
        self._response_fields = response_fields
        self._reads: Dict[str, None] = {}
        """The facts that were read, in the order of first sight."""
        self._running = -1
        """The index of the hook that runs."""
        self._file = ""
        """The source file of the hook that runs."""
        self._decided_by = -1
        """The index of the hook that changed something last."""
        self._line = 0
        self._headers: Optional[Headers] = None
        self._query_view: Optional[Query] = None
        self._key: Optional[Key] = None
        self._new_origin: Optional[Dict[str, Union[str, int]]] = None
        """The scheme, host and port that hooks have set."""
        self._new_path: Optional[str] = None
        self._new_route: Optional[str] = None
        self._response: Union["FetchedResponse", "Answer", None] = None

    @property
    def method(self) -> str:
        """The method: `GET`, `POST`, `CONNECT` …"""
        self._reads["method"] = None
        return self._facts[0]

    @property
    def scheme(self) -> str:
        """`http` or `https`. May be set to `https` for a request of the forward proxy; the usual port goes with it."""
        new = self._new_origin
        if new is not None and "scheme" in new:
            return new["scheme"]  # type: ignore[return-value]
        self._reads["scheme"] = None
        return self._facts[1]

    @scheme.setter
    def scheme(self, scheme: str) -> None:
        self._mark_request(_getframe(1))
        self._set_scheme(scheme)

    @property
    def host(self) -> str:
        """The host of the URL in lower case, without the port; an IPv6 address has brackets.

        May be set for a request of the forward proxy, which then goes there, with that `Host` and without the client's
        `Authorization`, `Cookie`, `Referer`, `Origin` and all other fields that may say who asks, unless the hook sets them.
        The request for a site has `route` instead.
        """
        new = self._new_origin
        if new is not None and "host" in new:
            return new["host"]  # type: ignore[return-value]
        self._reads["host"] = None
        return self._facts[2]

    @host.setter
    def host(self, host: str) -> None:
        self._mark_request(_getframe(1))
        self._set_host(host)

    @property
    def port(self) -> int:
        """The port of the URL. May be set for a request of the forward proxy."""
        new = self._new_origin
        if new is not None and "port" in new:
            return new["port"]  # type: ignore[return-value]
        self._reads["port"] = None
        return self._facts[3]

    @port.setter
    def port(self, port: int) -> None:
        self._mark_request(_getframe(1))
        self._set_port(port)

    @property
    def path(self) -> str:
        """The path of the URL as it was received, percent-encoded and without the query. May be set."""
        if self._new_path is not None:
            return self._new_path
        self._reads["path"] = None
        return self._path

    @path.setter
    def path(self, path: str) -> None:
        self._mark_request(_getframe(1))
        self._set_path(path)

    @property
    def query(self) -> Query:
        """The parameters of the URL."""
        view = self._query_view
        if view is None:
            view = self._query_view = Query(self._query, self._read_query, self._mark_request)
        return view

    @property
    def url(self) -> Url:
        """The URL: `str(req.url)`, `req.url.query`. May be set as a whole: `req.url = "https://mirror.example/x?a=1"`."""
        return Url(self)

    @url.setter
    def url(self, url: Union[str, Url]) -> None:
        self._mark_request(_getframe(1))
        scheme, host, port, path, query = _checks.url(str(url) if isinstance(url, Url) else url)
        # A URL that keeps its origin is one that a request for a site may have too.
        if (scheme, host, port) != (self.scheme, self.host, self.port):
            self._set_origin(scheme=scheme, host=host, port=port)
        self._set_path(path)
        self.query._replace(query)

    @property
    def client(self) -> str:
        """The address of the client."""
        self._reads["client"] = None
        return self._facts[4]

    @property
    def name(self) -> str:
        """The name of the request in Larder's log. Each request has another one, so that nothing is remembered after it was read."""
        self._reads["name"] = None
        return self._name

    @property
    def headers(self) -> Headers:
        """The fields of the request."""
        view = self._headers
        if view is None:
            view = self._headers = Headers(self._facts[5], REQUEST_NOTES, self._reads, self._mark_request, "request")
        return view

    @property
    def cookies(self) -> Cookies:
        """The cookies of the request, by their names. To change them set the field `cookie`."""
        return Cookies(parse_cookies(self.headers.get("cookie", "")))

    @property
    def key(self) -> Key:
        """The cache key, to which texts may be added."""
        key = self._key
        if key is None:
            key = self._key = Key(self)
        return key

    @property
    def route(self) -> Optional[str]:
        """The name of the origin that a hook chose, else None. May be set."""
        return self._new_route

    @route.setter
    def route(self, name: str) -> None:
        self._mark_request(_getframe(1))
        if not _checks.text(name, "a route"):
            raise ValueError("a route is the name of an origin, and may not be empty")
        self._new_route = name
        self._route_by = self._decided_by, self._line

    def __repr__(self) -> str:
        return f"<larder.Request {self.method} {self.url}>"

    def _set_scheme(self, scheme: str) -> None:
        _checks.scheme(scheme)
        if self.port == DEFAULT_PORTS[self.scheme]:
            self._set_origin(scheme=scheme, port=DEFAULT_PORTS[scheme])
        else:
            self._set_origin(scheme=scheme)

    def _set_host(self, host: str) -> None:
        self._set_origin(host=_checks.host(host))

    def _set_port(self, port: int) -> None:
        self._set_origin(port=_checks.port(port))

    def _set_origin(self, **parts: Union[str, int]) -> None:
        self._new_origin = {**(self._new_origin or {}), **parts}
        self._origin_by = self._decided_by, self._line

    def _set_path(self, path: str) -> None:
        self._new_path = _checks.path(path)
        self._path_by = self._decided_by, self._line

    def _read_query(self) -> None:
        self._reads["query"] = None

    def _mark(self, frame: Optional[FrameType]) -> None:
        """Note which line of which hook changes something."""
        file = self._file
        while frame is not None and frame.f_code.co_filename != file:
            frame = frame.f_back
        self._line = frame.f_lineno if frame is not None else 0
        self._decided_by = self._running

    def _mark_request(self, frame: FrameType) -> None:
        if self._stage != "request" and self._stage != "page":
            raise AttributeError(
                f"a {self._stage} hook can't change the request, which was sent before or looked up: do that in a"
                f" @larder.request hook"
            )
        self._mark(frame)


class Tags(NotCopied):
    """The tags of a response, by which it can be purged together with others."""

    __slots__ = ("_mark", "_tags")

    def __init__(self, request: Request) -> None:
        self._mark = request._mark
        self._tags: Dict[str, None] = {}

    def add(self, *tags: str) -> None:
        """Add tags: `resp.tags.add("api", "user-5")`."""
        self._mark(_getframe(1))
        for tag in tags:
            self._tags[_checks.tag(tag)] = None


class Purge(NotCopied):
    """Purges because of a response: stored responses that are forgotten before this one is sent to its client."""

    __slots__ = ("_mark", "_tags")

    def __init__(self, request: Request) -> None:
        self._mark = request._mark
        self._tags: Dict[str, None] = {}

    def tag(self, *tags: str) -> None:
        """Forget the responses with one of these tags, as `larder purge --tag` does: `resp.purge.tag("news")`."""
        self._mark(_getframe(1))
        for tag in tags:
            self._tags[_checks.tag(tag)] = None


class ResponseHead(NotCopied):
    """The head of a response, as hooks of one stage see it."""

    __slots__ = ("_headers", "_request")

    _stage: ClassVar[str]

    def __init__(self, request: Request) -> None:
        self._request = request
        self._headers: Optional[Headers] = None

    @property
    def status(self) -> int:
        """The status of the response: 200 also where the client gets a part of it, or is told that it has not changed."""
        self._request._reads["status"] = None
        return self._request._status

    @property
    def headers(self) -> Headers:
        """The fields of the response."""
        view = self._headers
        if view is None:
            request = self._request
            view = self._headers = Headers(
                request._response_fields, RESPONSE_NOTES, request._reads, self._mark_of_fields(), self._stage
            )
        return view

    def _mark_of_fields(self) -> Mark:
        return self._request._mark


class FetchedResponse(ResponseHead):
    """The head of a response as it came from the origin, before Larder decides whether and how long to store it."""

    __slots__ = ("_grace", "_purge", "_tags", "_ttl")

    _stage = "fetched"

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._ttl: Optional[int] = None
        self._grace: Optional[int] = None
        self._tags: Optional[Tags] = None
        self._purge: Optional[Purge] = None

    @property
    def ttl(self) -> Optional[float]:
        """How long the response is fresh, in seconds, as far as a hook said so. May be set: `resp.ttl = "5m"`."""
        return None if self._ttl is None else self._ttl / 1000

    @ttl.setter
    def ttl(self, ttl: Duration) -> None:
        self._request._mark(_getframe(1))
        self._ttl = _checks.milliseconds(ttl, "ttl")

    @property
    def grace(self) -> Optional[float]:
        """How long the response may be used after its ttl while a new one is fetched, in seconds. May be set."""
        return None if self._grace is None else self._grace / 1000

    @grace.setter
    def grace(self, grace: Duration) -> None:
        self._request._mark(_getframe(1))
        self._grace = _checks.milliseconds(grace, "grace")

    @property
    def tags(self) -> Tags:
        """The tags that are added to those of the origin."""
        tags = self._tags
        if tags is None:
            tags = self._tags = Tags(self._request)
        return tags

    @property
    def purge(self) -> Purge:
        """The purges that this response causes."""
        purge = self._purge
        if purge is None:
            purge = self._purge = Purge(self._request)
        return purge

    def __repr__(self) -> str:
        return f"<larder.FetchedResponse {self.status}>"


def changes_of(request: Request) -> List[str]:
    """Return the members of the reply that tell of changes, as JSON."""
    parts: List[str] = []
    if request._new_origin is not None:
        members = (f'"{name}":{value if type(value) is int else quoted(value)}' for name, value in request._new_origin.items())
        parts.append(f'{",".join(members)},"origin_by":{list(request._origin_by)}')
    if request._new_path is not None:
        parts.append(f'"path":{quoted(request._new_path)},"path_by":{list(request._path_by)}')
    query = request._query_view
    if query is not None and query._changed():
        text = query._text()
        parts.append('"query":null' if text is None else f'"query":{quoted(text)}')
    if request._key is not None and request._key._texts:
        parts.append(f'"key":{_list(request._key._texts)}')
    if request._new_route is not None:
        parts.append(f'"route":{quoted(request._new_route)},"route_by":{list(request._route_by)}')
    if request._headers is not None and request._headers._changed:
        _changes_of_fields(parts, request._headers._changed, "set", "remove")
    response = request._response
    if response is not None:
        if isinstance(response, FetchedResponse):
            if response._ttl is not None:
                parts.append(f'"ttl_ms":{response._ttl}')
            if response._grace is not None:
                parts.append(f'"grace_ms":{response._grace}')
            if response._tags is not None and response._tags._tags:
                parts.append(f'"tags":{_list(response._tags._tags)}')
            if response._purge is not None and response._purge._tags:
                parts.append(f'"purge_tags":{_list(response._purge._tags)}')
        if response._headers is not None and response._headers._changed:
            _changes_of_fields(parts, response._headers._changed, "response_set", "response_remove")
    return parts


def _list(texts: Any) -> str:
    return f"[{','.join(map(quoted, texts))}]"


def _changes_of_fields(parts: List[str], changed: Dict[str, List[str]], set_member: str, remove_member: str) -> None:
    pairs = [f"[{quoted(name)},{quoted(value)}]" for name, values in changed.items() for value in values]
    removed = [name for name, values in changed.items() if not values]
    if pairs:
        parts.append(f'"{set_member}":[{",".join(pairs)}]')
    if removed:
        parts.append(f'"{remove_member}":{_list(removed)}')
