"""A page for the time of maintenance, for as long as a file is there: `touch maintenance.on`, and later `rm maintenance.on`.

Those who work on the site see the origin itself.
"""

import ipaddress
import os
from typing import Optional

import larder

FLAG = os.path.join(os.path.dirname(__file__), "maintenance.on")
STAFF = [ipaddress.ip_network(network) for network in ("127.0.0.0/8", "::1/128", "192.0.2.0/28")]
PAGE = larder.Response(
    "<!doctype html><title>Back soon</title><h1>Back soon</h1><p>We are working on this site.",
    status=503,
    headers={"content-type": "text/html; charset=utf-8", "retry-after": "600", "cache-control": "no-store"},
)


# Not remembered, because it depends on a file. It is asked before stored pages are looked up, so that nothing else is shown.
@larder.request
def maintenance(req: larder.Request) -> Optional[larder.Outcome]:
    if not os.path.exists(FLAG):
        return None
    client = ipaddress.ip_address(req.client)
    if any(client in network for network in STAFF):
        # Nothing of a site that is half done is stored.
        return larder.pass_()
    return PAGE
