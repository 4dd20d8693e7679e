"""Keep the origin's refusals for a moment: what is not there is asked for once, and an origin in trouble gets some rest."""

import larder

ABSENT = "30s"
GONE = "10m"
OVERLOADED = "2s"


def says_nothing(resp: larder.FetchedResponse) -> bool:
    """Whether the origin leaves the lifetime open."""
    return "cache-control" not in resp.headers and "expires" not in resp.headers


@larder.fetched(method=["GET", "HEAD"], status=[404, 410])
def absent(req: larder.Request, resp: larder.FetchedResponse) -> None:
    if says_nothing(resp):
        resp.ttl = GONE if resp.status == 410 else ABSENT


# Not 400, 403 or 500: an unusual field of one client may be their cause, and others would get them too. That is also why the
# time is short.
@larder.fetched(method=["GET", "HEAD"], status=[502, 503, 504])
def overloaded(req: larder.Request, resp: larder.FetchedResponse) -> None:
    if says_nothing(resp):
        resp.ttl = OVERLOADED
