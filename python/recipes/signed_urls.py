"""Links that end: a URL is answered only with the signature of who may hand it out, and until its time is over.

The origin makes links by `sign` with the same key: 32 random bytes or more in the file signed_urls.key beside this one, which
`(umask 077; python3 -c "import secrets; print(secrets.token_hex(32))" > signed_urls.key)` makes.
"""

import hashlib
import hmac
import re
from pathlib import Path
from time import time
from typing import Optional

import larder

KEY_FILE = Path(__file__).with_name("signed_urls.key")


def read_key() -> bytes:
    """Return the key; without a file there is none, and nothing is signed."""
    try:
        text = KEY_FILE.read_bytes().strip()
    except FileNotFoundError:
        return b""
    if len(text) < 32:
        raise ValueError(f"{KEY_FILE} has {len(text)} bytes, and a key has 32 or more")
    return text


# Read as the file is loaded: `larder check` and `larder reload` refuse one that is no key, and all processes have the same.
KEY = read_key()


def sign(host: str, path: str, query: str, expires: int) -> str:
    """Return the query for a link: the one that it has, the time at which it ends (Unix seconds), and the signature."""
    query = f"{query}&expires={expires}" if query else f"expires={expires}"
    return f"{query}&signature={signature_of(host, path, query)}"


def signature_of(host: str, path: str, query: str) -> str:
    if not KEY:
        raise FileNotFoundError(f"there was no {KEY_FILE} when this file was loaded")
    return hmac.new(KEY, f"{host}\n{path}\n{query}".encode("latin-1"), hashlib.sha256).hexdigest()


# For all methods: one that is left out would be a way around. Not remembered, for the decision depends on the time.
@larder.request(path="/private/**")
def signed_urls(req: larder.Request) -> Optional[larder.Response]:
    expires, given = req.query.getall("expires"), req.query.getall("signature")
    if len(expires) != 1 or len(given) != 1 or not re.fullmatch("[0-9]{1,11}", expires[0]):
        return larder.deny("This address needs a signature.")
    del req.query["signature"]
    wanted = signature_of(req.host, req.path, str(req.query))
    if not hmac.compare_digest(wanted.encode(), given[0].encode("utf-8", "replace")):
        return larder.deny("The signature of this address is wrong.")
    if int(expires[0]) <= time():
        return larder.deny("This address has ended.", 410)
    # One stored copy for all who may have it. The hook is asked before each use of it.
    del req.query["expires"]
    return None
