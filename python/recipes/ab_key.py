"""Two versions of a page: each visitor belongs to a group, and the cache keeps a page for each group."""

import hashlib

import larder

GROUPS = {"a": 80, "b": 20}
"""The shares of all visitors, in percent."""
EXPERIMENT = "checkout-2026"
"""Another name divides the visitors anew."""


def group_of(visitor: str) -> str:
    draw = int.from_bytes(hashlib.sha256(f"{EXPERIMENT} {visitor}".encode()).digest()[:4], "big") % 100
    for group, share in GROUPS.items():
        draw -= share
        if draw < 0:
            return group
    return next(iter(GROUPS))


# A field that a hook sets is a part of the key. So the value is always one of the groups, whatever a client sends: clients
# who could choose it could fill the cache with copies.
@larder.request(path="/shop/**", method=["GET", "HEAD"], remember="60s")
def ab_key(req: larder.Request) -> None:
    chosen = req.cookies.get("group", "")
    req.headers["x-group"] = chosen if chosen in GROUPS else group_of(req.client)
