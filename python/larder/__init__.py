"""What scripts may import while they run inside Larder: hooks, and what they return.

    import larder

    @larder.request(path="/cart/*")
    def cart(req):
        if "session" not in req.cookies:
            return larder.redirect("/login", 303)
"""

from typing import NoReturn

from ._decisions import Decision, Response, deny, pass_, redirect
from ._definitions import fetched, page, request
from ._messages import FetchedResponse, Request, Url
from ._views import Headers, Query

__all__ = [
    "Decision", "FetchedResponse", "Headers", "Query", "Request", "Response", "Url",
    "deny", "fetched", "page", "pass_", "redirect", "request",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    if name in ("found", "respond", "miss"):
        raise AttributeError(f"larder.{name} does not exist yet: there are larder.request, larder.page and larder.fetched")
    raise AttributeError(f"module 'larder' has no attribute {name!r}")
