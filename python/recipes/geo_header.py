"""Tell the origin the country of a client, and keep its pages for each country apart."""

import ipaddress

import larder

# Networks and their countries. Fill in what your register of addresses says; of several networks the smallest counts.
COUNTRIES = {
    "192.0.2.0/24": "at",
    "198.51.100.0/24": "de",
    "198.51.100.128/25": "ch",
    "2001:db8:a::/48": "at",
}
UNKNOWN = "zz"

NETWORKS = sorted(
    ((ipaddress.ip_network(network), country) for network, country in COUNTRIES.items()),
    key=lambda row: row[0].prefixlen,
    reverse=True,
)


def country_of(client: str) -> str:
    address = ipaddress.ip_address(client)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return next((country for network, country in NETWORKS if address in network), UNKNOWN)


# The hook replaces an x-country that a client sends. The field is a part of the key, because a hook set it.
@larder.request(remember="1h")
def geo_header(req: larder.Request) -> None:
    req.headers["x-country"] = country_of(req.client)
