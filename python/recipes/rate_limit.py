"""Requests a second of each client: a bucket of tokens, which fills up again.

Each process of hooks counts for itself, so that a client gets up to `processes` times as much; and what is counted is gone when
the process is replaced. This keeps one client from taking all. It is no defence against many.
"""

import ipaddress
from collections import OrderedDict
from time import monotonic
from typing import Optional, Tuple

import larder

PER_SECOND = 5.0
BURST = 20.0
CLIENTS_MAX = 50_000
"""Of more clients the one that was seen longest ago is forgotten: some 13 MB."""

buckets: "OrderedDict[str, Tuple[float, float]]" = OrderedDict()
"""The tokens of each client, and when they were counted."""


def network_of(client: str) -> str:
    """A client with IPv6 has a whole network of addresses (/64), which counts as one client."""
    address = ipaddress.ip_address(client)
    if isinstance(address, ipaddress.IPv6Address) and not address.ipv4_mapped:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return client


def seconds_to_wait(client: str) -> float:
    """Take a token. Without one, return the seconds until there is one again."""
    now = monotonic()
    tokens, counted_at = buckets.pop(client, (BURST, now))
    tokens = min(BURST, tokens + (now - counted_at) * PER_SECOND)
    wait = 0.0 if tokens >= 1 else (1 - tokens) / PER_SECOND
    buckets[client] = (tokens - 1 if wait == 0 else tokens, now)
    if len(buckets) > CLIENTS_MAX:
        buckets.popitem(last=False)
    return wait


# Not remembered: each request counts, also one that a stored page answers.
@larder.request
def rate_limit(req: larder.Request) -> Optional[larder.Response]:
    wait = seconds_to_wait(network_of(req.client))
    if wait == 0:
        return None
    headers = {"retry-after": str(int(wait) + 1), "cache-control": "no-store"}
    return larder.Response("Too many requests: slow down.\n", status=429, headers=headers)
