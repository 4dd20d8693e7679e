"""Files of a bucket under paths of the site: `/media/a.png` is the object `media/a.png` of the bucket.

The bucket gets neither cookies nor credentials of clients, and no parameter: in an object store those list a bucket, or show
who owns what. It is told who asks by a secret in `Referer`, on which a bucket's policy can insist (`aws:Referer`).
"""

import re
from pathlib import Path
from typing import Optional

import larder

BUCKET = "/shop-files"
"""Stands before the path, where the store does not have it in the host."""
PATH = re.compile(r"/media/[A-Za-z0-9_~.-]+(?:/[A-Za-z0-9_~.-]+)*")
SECRET_FILE = Path(__file__).with_name("object_store.secret")
SECRET = SECRET_FILE.read_text().strip() if SECRET_FILE.exists() else ""


@larder.request(path=["/media", "/media/**"])
def object_store(req: larder.Request) -> Optional[larder.Response]:
    if req.method not in ("GET", "HEAD"):
        return larder.deny("Files can be read here, and not changed.", 405)
    if not PATH.fullmatch(req.path) or "/.." in req.path or "/./" in f"{req.path}/":
        return larder.deny("There is no such file.", 404)
    req.path = BUCKET + req.path
    req.query.clear()
    for name in ("cookie", "authorization", "referer", "origin"):
        del req.headers[name]
    # One value for all clients, so that it keeps no answers apart. A signature with a time in it would be another key each time.
    if SECRET:
        req.headers["referer"] = SECRET
    return None


@larder.fetched(path=[f"{BUCKET}/media/**"], status=[200, 206])
def describe(req: larder.Request, resp: larder.FetchedResponse) -> None:
    resp.ttl, resp.grace = "1d", "7d"
    for name, _ in resp.headers.items():
        if name.startswith(("x-amz-", "x-goog-")):
            del resp.headers[name]
