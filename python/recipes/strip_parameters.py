"""Leave out the parameters that campaigns add to links: neither the origin nor the key of the cache has them."""

import larder

TRACKING = (
    "utm_*", "mtm_*", "mc_cid", "mc_eid", "fbclid", "gclid", "dclid", "gbraid", "wbraid", "msclkid", "yclid", "_ga", "_gl",
)  # fmt: skip


# The decision follows from the query alone, so that Larder may remember it.
@larder.request(method=["GET", "HEAD"], remember="60s")
def strip_parameters(req: larder.Request) -> None:
    req.query.drop(*TRACKING)
