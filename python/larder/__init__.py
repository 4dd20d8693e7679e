"""What scripts may import while they run inside Larder: hooks, and what they return.

    import larder

    @larder.request(path="/cart/*")
    def cart(req):
        if "session" not in req.cookies:
            return larder.redirect("/login", 303)

Names are imported at their first use, so that applications, which use none, start sooner.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from ._answers import Answer, Found
    from ._decisions import Outcome, Response, deny, miss, pass_, redirect
    from ._definitions import fetched, found, page, request, respond
    from ._messages import FetchedResponse, Request, Url
    from ._views import Cookies, Headers, Query

_HOMES = {
    "Answer": "._answers", "Found": "._answers",
    "Outcome": "._decisions", "Response": "._decisions", "deny": "._decisions", "miss": "._decisions", "pass_": "._decisions",
    "redirect": "._decisions",
    "fetched": "._definitions", "found": "._definitions", "page": "._definitions", "request": "._definitions",
    "respond": "._definitions",
    "FetchedResponse": "._messages", "Request": "._messages", "Url": "._messages",
    "Cookies": "._views", "Headers": "._views", "Query": "._views",
}  # fmt: skip

__all__ = [
    "Answer", "Cookies", "FetchedResponse", "Found", "Headers", "Outcome", "Query", "Request", "Response", "Url",
    "deny", "fetched", "found", "miss", "page", "pass_", "redirect", "request", "respond",
]  # fmt: skip


# For type checkers a module with this function would have every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            found = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
            return found
        raise AttributeError(f"module 'larder' has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
