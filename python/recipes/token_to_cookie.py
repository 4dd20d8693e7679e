"""Move the token of a link into a cookie: it stands in no address bar, no bookmark, no `Referer` and no later log line."""

import re
from typing import Optional

import larder

PARAMETER = "token"
COOKIE = "token"
MAX_AGE = 8 * 3600
# The form of the origin's tokens. A character that ends a cookie or a field may not be among them.
TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,512}")


@larder.request(method=["GET", "HEAD"])
def token_to_cookie(req: larder.Request) -> Optional[larder.Response]:
    tokens = req.query.getall(PARAMETER)
    if not tokens:
        return None
    if len(tokens) > 1 or not TOKEN.fullmatch(tokens[0]):
        return larder.deny("This link is damaged: ask for a new one.", 400)
    del req.query[PARAMETER]
    # A target that begins with two slashes leads to another host, and to browsers a backslash is one.
    target = "/" + req.path.lstrip("/\\")
    if str(req.query):
        target += f"?{req.query}"
    secure = "; Secure" if req.scheme == "https" else ""
    cookie = f"{COOKIE}={tokens[0]}; Path=/; Max-Age={MAX_AGE}; HttpOnly; SameSite=Lax{secure}"
    headers = {"location": target, "set-cookie": cookie, "cache-control": "no-store", "referrer-policy": "no-referrer"}
    return larder.Response(status=303, headers=headers)
