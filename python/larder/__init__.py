"""What scripts may import while they run inside Larder: hooks, and what they return.

import larder

@larder.request(path="/cart/*")
def cart(req):
    if "session" not in req.cookies:
        return larder.redirect("/login", 303)
"""

from typing import NoReturn

from ._decisions import Outcome, Response, deny, pass_, redirect
from ._definitions import NOT_YET, fetched, not_yet, page, request
from ._messages import FetchedResponse, Request, Url
from ._views import Headers, Query

__all__ = [
    "FetchedResponse", "Headers", "Outcome", "Query", "Request", "Response", "Url",
    "deny", "fetched", "page", "pass_", "redirect", "request",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    if name in NOT_YET:
        raise AttributeError(not_yet(name))
    raise AttributeError(f"module 'larder' has no attribute {name!r}")
