"""Hooks without a network and without Larder, for tests.

    import larder.testing

    def test_cart():
        decision = larder.testing.call("policy.py", "GET http://shop.example/cart/1?utm_source=x")
        assert decision.response.status == 303
        decision = larder.testing.call("policy.py", "GET http://shop.example/cart/1", headers={"cookie": "session=1"})
        assert decision.response is None and decision.key == ["free"]

`larder test` runs such functions, and so does pytest. Under pytest this module is a plugin, too (`pytest -p larder.testing`):
its fixture `hooks` is `load("policy.py")` in a file test_policy.py.

The calls take the way that those of Larder take, filters included; Larder itself has no part in them, so that its checks of
what hooks say (whether an origin of that name exists) are left out.
"""

import json
import os
import re
import sys
from base64 import b64decode
from contextlib import nullcontext
from importlib import import_module
from types import FrameType
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Tuple, Union

from . import _calls, _checks, _decisions, _definitions, _hooks
from ._checks import DEFAULT_PORTS
from ._decisions import FieldsArgument, Response
from ._definitions import Hook
from ._runtime import LoadFailed, format_error

__all__ = ["Decision", "HookFailed", "Script", "call", "load"]

File = Union[str, "os.PathLike[str]"]
Hooks = Union[File, "Script", Callable[..., Any], Sequence[Callable[..., Any]]]

_CONNECT = re.compile(r"CONNECT ([^/?#:\[\]@]+|\[[^\]]*\]):([0-9]{1,5})")
_REQUEST = re.compile(
    r"(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+) )?(?:(https?)://([^/?#:\[\]@]+|\[[^\]]*\])(?::([0-9]{1,5}))?)?(/[!-~]*)?"
)


class HookFailed(Exception):
    """A hook raised an exception, or said what can't be taken: the cause is that exception. Or it took longer than `hook_time`."""


def _unlimited(calls: _calls.Calls, hooks: List[Hook]) -> ContextManager[None]:
    return nullcontext()


limit_of_call: Callable[[_calls.Calls, List[Hook]], ContextManager[None]] = _unlimited
"""Bounds the time of a call; `larder test` sets it."""


class Decision:
    """The decision of the hooks of a call."""

    def __init__(self, ran: List[Hook], target: "_Target", said: Dict[str, Any]) -> None:
        self.ran: List[str] = [hook.name for hook in ran]
        """The names of the hooks whose filters let the request through, in their order."""
        self.changes: Dict[str, Any] = {name: said[name] for name in said if name not in ("hook", "line", "read")}
        """The decision as Larder is told it, in the form of its protocol; nothing where the hooks changed nothing."""
        self.hook: Optional[str] = said.get("hook")
        """The name of the hook that decided, or that changed something last."""
        self.line: Optional[int] = said.get("line")
        """The line of that."""
        self.read: List[str] = said.get("read", [])
        """The facts that the hooks looked at: `remember` keeps the decision for requests in which these are the same."""
        self.scheme: str = said.get("scheme", target.scheme)
        """The scheme after the hooks. That, host and port can be others for requests of the forward proxy alone."""
        self.host: str = said.get("host", target.host)
        """The host after the hooks."""
        self.port: int = said.get("port", target.port)
        """The port after the hooks."""
        self.path: str = said.get("path", target.path)
        """The path after the hooks."""
        self.query: Optional[str] = said.get("query", target.query)
        """The query after the hooks, without `?`; None where there is none."""
        self.key: List[str] = said.get("key", [])
        """The texts that are added to the cache key."""
        self.route: Optional[str] = said.get("route")
        """The name of the origin that a hook chose."""
        self.passed: bool = said.get("pass", False)
        """Whether a hook returned `larder.pass_()`."""
        self.missed: bool = said.get("miss", False)
        """Whether a hook returned `larder.miss()`."""
        self.ambiguous: Optional[str] = said.get("ambiguous")
        """A cookie that a hook looked at and of which the request has two values: Larder answers 400."""
        self.response: Optional[Response] = _response(said["respond"]) if "respond" in said else None
        """The answer of a hook: `decision.response.status`."""
        self.set: List[Tuple[str, str]] = [(name, value) for name, value in said.get("set", [])]
        """The fields of the request that are set, as pairs with names in lower case."""
        self.removed: List[str] = said.get("remove", [])
        """The fields of the request that are removed."""
        self.ttl: Optional[float] = said["ttl_ms"] / 1000 if "ttl_ms" in said else None
        """How long the response is fresh, in seconds; None where no hook said so."""
        self.grace: Optional[float] = said["grace_ms"] / 1000 if "grace_ms" in said else None
        """How long it may be used after its ttl, in seconds; None where no hook said so."""
        self.tags: List[str] = said.get("tags", [])
        """The tags that are added."""
        self.purged_tags: List[str] = said.get("purge_tags", [])
        """The tags whose responses are forgotten."""
        self.response_set: List[Tuple[str, str]] = [(name, value) for name, value in said.get("response_set", [])]
        """The fields of the response that are set."""
        self.response_removed: List[str] = said.get("response_remove", [])
        """The fields of the response that are removed."""

    @property
    def url(self) -> str:
        """The whole URL after the hooks."""
        authority = self.host if self.port == DEFAULT_PORTS[self.scheme] else f"{self.host}:{self.port}"
        return f"{self.scheme}://{authority}{self.path}" + ("" if self.query is None else f"?{self.query}")

    def __repr__(self) -> str:
        return f"<larder.testing.Decision of {', '.join(self.ran) or 'no hook'}: {json.dumps(self.changes)}>"


class Script:
    """The hooks of a file, loaded once: what they keep in their module is there at the next call. See `load`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._hooks = _load(path)
        self.module: Any = sys.modules[_hooks.name_of_module(0, path)]
        """The module of the file, of which a test may replace what the hooks use: `hooks.module.time = lambda: 1000.0`."""

    @property
    def hooks(self) -> List[str]:
        """The names of the hooks, in the order in which they run."""
        return [hook.name for hook in self._hooks]

    def __repr__(self) -> str:
        return f"<larder.testing.Script {self.path}: {', '.join(self.hooks)}>"


def load(file: File) -> Script:
    """Load a file of hooks, for several calls.

        hooks = larder.testing.load("policy.py")
        for _ in range(3):
            larder.testing.call(hooks, "GET http://shop.example/")

    The path is relative to the folder of the calling file, or to the working directory where that has no such file.
    """
    return Script(_located(file, sys._getframe(1)))


def call(
    hooks: Hooks,
    request: str = "GET http://example.org/",
    *,
    headers: FieldsArgument = None,
    client: str = "192.0.2.1",
    name: str = "test",
    status: Optional[int] = None,
    response_headers: FieldsArgument = None,
    stage: Optional[str] = None,
    age: int = 0,
    ttl: int = 60,
    tags: Sequence[str] = (),
) -> Decision:
    """Play hooks for a request, and return what they decide. Raise `HookFailed` where one fails.

        larder.testing.call(cart, "GET http://shop.example/cart/1?a=1", headers={"x-plan": "gold"})
        larder.testing.call("policy.py", "/api/users", status=200, response_headers={"content-type": "text/html"})

    `hooks` is a function with one of Larder's decorators, a list of such functions, the path of a file, which is loaded
    anew for each call, or what `load` returned. The path is relative to the folder of the calling file, or to the working
    directory where that has no such file.

    `request` is a method, which may be left out, and a URL or path; or `CONNECT shop.example:443`. The field `host` is added.

    `stage` is `request`, `page`, `found`, `fetched` or `respond`: without it that of the function, and for a file `fetched`
    where `status` is given, else `request`, of which pages are a part. `age`, `ttl` and `tags` are those of a stored response.
    """
    if isinstance(hooks, (str, os.PathLike)):
        known = _load(_located(hooks, sys._getframe(1)))
    else:
        known = hooks._hooks if isinstance(hooks, Script) else _hooks_of(hooks)
    if stage is None:
        stages = {hook.stage for hook in known}
        stage = stages.pop() if len(stages) == 1 else "request" if status is None else "fetched"
    if stage not in ("request", "page", "found", "fetched", "respond"):
        raise ValueError(f"{_checks.shortened(stage)} is no stage: there are request, page, found, fetched and respond")
    has_response = stage in ("found", "fetched", "respond")
    if not has_response and (status is not None or response_headers):
        raise ValueError(f"a {stage} hook runs before there is a response: leave status and response_headers out")
    target = _Target(request)
    fields = _decisions.checked_fields(headers)
    if not any(field == "host" for field, _ in fields):
        fields.insert(0, ("host", target.authority))
    code = _checks.status(200 if status is None else status) if has_response else 0
    names = [field for field, _ in fields]
    indexes = [
        index
        for index, hook in enumerate(known)
        if hook.is_of(stage) and hook.matches(target.method, target.host, None if target.is_connect else target.path, names, code)
    ]
    if not indexes:
        return Decision([], target, {})
    facts = (
        target.method, target.scheme, target.host, target.port, target.path, target.query, client, name,
        tuple(fields), code, tuple(_decisions.checked_fields(response_headers)),
    )  # fmt: skip
    found = (age, ttl, int(ttl <= 0), tuple(tags)) if stage == "found" else None
    said = _play(known, _calls.packed(stage, tuple(indexes), facts, found))
    if "hook" in said:
        said["hook"] = known[said["hook"]].name
    return Decision([known[index] for index in indexes], target, said)


def _play(hooks: List[Hook], payload: bytes) -> Dict[str, Any]:
    """Send the call in a frame, as Larder does."""
    errors: List[BaseException] = []

    def report(name: str, method: str, target: str, error: BaseException) -> str:
        errors.append(error)
        return format_error(error)

    calls = _calls.Calls(hooks, report)
    try:
        with limit_of_call(calls, hooks):
            data, _ = _calls.Frames(calls).feed(_calls.HEADER.pack(len(payload), 0, 0, _calls.CALL, 0) + payload)
    finally:
        calls.close()
    if not data:
        raise ValueError(f"Larder could not send this call: {_checks.shortened(payload)}")
    said: Dict[str, Any] = json.loads(_calls.text_of_reply(data) or b"{}")
    if errors:
        raise HookFailed(said["traceback"]) from errors[0]
    return said


class _Target:
    """The parts of what is requested."""

    def __init__(self, text: str) -> None:
        connect = _CONNECT.fullmatch(text)
        self.is_connect = connect is not None
        if connect:
            # As Larder has it: the tunnel is taken to be one for https.
            text = f"CONNECT https://{connect[1]}:{connect[2]}/"
        match = _REQUEST.fullmatch(text)
        if not match or "#" in text or not (match[3] or match[5]):
            raise ValueError(
                f"{_checks.shortened(text)} is no request: write 'GET http://shop.example/cart?a=1', 'CONNECT shop.example:443', or a path alone;"
                f" characters outside ASCII are percent-encoded in a URL"
            )
        self.method: str = match[1] or "GET"
        self.scheme: str = match[2] or "http"
        self.host: str = (match[3] or "example.org").lower()
        default = 443 if self.scheme == "https" else 80
        self.port: int = int(match[4] or default)
        self.authority: str = self.host if self.port == default else f"{self.host}:{self.port}"
        path, mark, query = (match[5] or "/").partition("?")
        self.path: str = path
        self.query: Optional[str] = query if mark else None


def _located(file: File, caller: FrameType) -> str:
    """Return the path of a file that a test names. Tests run in any working directory."""
    name = os.fspath(file)
    source = caller.f_globals.get("__file__")
    beside = os.path.join(os.path.dirname(os.path.abspath(source)), name) if source else name
    return os.path.abspath(beside if os.path.exists(beside) else name)


def _load(path: str) -> List[Hook]:
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)
    try:
        return _hooks.load_files([os.path.basename(path)], folder)[0]
    except LoadFailed as error:
        raise ImportError(str(error), path=path) from error.__cause__
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _hooks_of(functions: Any) -> List[Hook]:
    hooks: List[Hook] = []
    for function in [functions] if callable(functions) else functions:
        found = _definitions.hooks_of(function)
        if not found:
            raise TypeError(
                f"{_checks.kind_of(function)} is no hook: put @larder.request or another decorator of larder before it"
            )
        hooks += found
    return hooks


def _response(said: Dict[str, Any]) -> Response:
    return Response(b64decode(said["body"]), said["status"], [(name, value) for name, value in said["fields"]])


def file_of_hooks(test_file: str) -> str:
    """Return the path of the hooks that a file of tests is about: policy.py for test_policy.py and policy_test.py beside it."""
    folder, name = os.path.split(os.path.abspath(test_file))
    stem = name[: -len(".py")]
    if stem.startswith("test_"):
        stem = stem[len("test_") :]
    elif stem.endswith("_test"):
        stem = stem[: -len("_test")]
    path = os.path.join(folder, f"{stem}.py")
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"the fixture `hooks` of {name} is the file {stem}.py beside it, and there is none: name yours by load('...')"
        )
    return path


def _make_fixture() -> Any:
    """Make the fixture `hooks` of pytest."""

    def hooks(request: Any) -> Script:
        """The hooks of policy.py in a file test_policy.py, loaded anew for each test."""
        return Script(file_of_hooks(request.module.__file__))

    return import_module("pytest").fixture(hooks)


# The fixture is there where pytest runs: without it this module needs nothing but the standard library.
if "pytest" in sys.modules:
    hooks = _make_fixture()
