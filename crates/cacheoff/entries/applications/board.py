"""The board of the contest in Python, as WSGI (`application`) and as ASGI (`asgi`): SQLite and nothing else.

The same pages in PHP, Perl and Ruby lie beside this file; all of them answer the same bytes.
"""

import os
import sqlite3
import threading
from urllib.parse import parse_qs

HTML = "text/html; charset=utf-8"
THREADS_A_PAGE = 30
POSTS_SHOWN = 20
REASONS = {
    200: "200 OK",
    303: "303 See Other",
    400: "400 Bad Request",
    403: "403 Forbidden",
    404: "404 Not Found",
    405: "405 Method Not Allowed",
}

USER = "SELECT id, name FROM users WHERE token = ?"
LIST = (
    "SELECT threads.id, subject, name, posts FROM threads JOIN users ON users.id = threads.user "
    "WHERE threads.id > ? ORDER BY threads.id LIMIT ?"
)
THREAD = "SELECT subject FROM threads WHERE id = ?"
POSTS = (
    "SELECT name, text FROM posts JOIN users ON users.id = posts.user "
    "WHERE thread = ? ORDER BY posts.id DESC LIMIT ?"
)
COUNT = "UPDATE threads SET posts = posts + 1 WHERE id = ?"
INSERT = "INSERT INTO posts (thread, user, text) VALUES (?, ?, ?)"

_of_thread = threading.local()


def _database():
    """The connection of this thread, which stays open and keeps its prepared statements."""
    try:
        return _of_thread.database
    except AttributeError:
        database = sqlite3.connect(os.environ["BOARD_DATABASE"], timeout=5, isolation_level=None)
        database.execute("PRAGMA synchronous = NORMAL")
        _of_thread.database = database
        return database


def _escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _session(cookie):
    for pair in cookie.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == "session":
            return value
    return ""


def _user(cookie):
    token = _session(cookie)
    return _database().execute(USER, (token,)).fetchone() if token else None


def _page(title, user, body):
    who = "Signed in as " + _escaped(user[1]) if user else "Not signed in"
    title = _escaped(title)
    text = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>' + title + "</title></head>\n<body>\n"
        "<p>" + who + "</p>\n<h1>" + title + "</h1>\n" + body + "</body></html>\n"
    )
    return 200, HTML, text.encode(), None


def _list(number, user):
    rows = _database().execute(LIST, (number * THREADS_A_PAGE, THREADS_A_PAGE)).fetchall()
    if not rows:
        return _error(404)
    items = [
        f'<li><a href="/thread/{thread}">{_escaped(subject)}</a> by {_escaped(name)}, {posts} posts</li>\n'
        for thread, subject, name, posts in rows
    ]
    return _page(f"Board, page {number}", user, "<ul>\n" + "".join(items) + "</ul>\n")


def _thread(number, user):
    database = _database()
    found = database.execute(THREAD, (number,)).fetchone()
    if not found:
        return _error(404)
    posts = database.execute(POSTS, (number, POSTS_SHOWN)).fetchall()
    items = [f"<div><b>{_escaped(name)}</b><p>{_escaped(text)}</p></div>\n" for name, text in reversed(posts)]
    form = f'<form method="post" action="/thread/{number}"><textarea name="text"></textarea><button>Post</button></form>\n'
    return _page(found[0], user, "".join(items) + form)


def _post(number, user, body):
    if not user:
        return _error(403)
    text = parse_qs(body.decode("utf-8", "replace")).get("text", [""])[0]
    if not text:
        return _error(400)
    database = _database()
    database.execute("BEGIN IMMEDIATE")
    try:
        exists = database.execute(COUNT, (number,)).rowcount
        if exists:
            database.execute(INSERT, (number, user[0], text))
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")
    return (303, HTML, b"", f"/thread/{number}") if exists else _error(404)


def _error(status):
    return status, "text/plain", (REASONS[status] + "\n").encode(), None


def answer(method, path, cookie, body):
    """Status, media type, body, and the place of a redirection."""
    if path == "/hello":
        return 200, "text/plain", b"Hello, World!\n", None
    name, _, number = path[1:].partition("/")
    if path == "/":
        name, number = "list", "0"
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return _error(404)
    if method == "POST" and name == "thread":
        return _post(int(number), _user(cookie), body)
    if method not in ("GET", "HEAD"):
        return _error(405)
    if name == "list":
        return _list(int(number), _user(cookie))
    return _thread(int(number), _user(cookie)) if name == "thread" else _error(404)


def application(environ, start_response):
    method = environ["REQUEST_METHOD"]
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length) if method == "POST" and length else b""
    status, media, body, location = answer(method, environ["PATH_INFO"], environ.get("HTTP_COOKIE", ""), body)
    fields = [("Content-Type", media), ("Cache-Control", "no-store"), ("Content-Length", str(len(body)))]
    if location:
        fields.append(("Location", location))
    start_response(REASONS[status], fields)
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    method, body = scope["method"], b""
    while method == "POST":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    cookie = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
    # A page takes less time than to hand it to a thread, so it is made here.
    status, media, body, location = answer(method, scope["path"], cookie, body)
    fields = [
        (b"content-type", media.encode()),
        (b"cache-control", b"no-store"),
        (b"content-length", str(len(body)).encode()),
    ]
    if location:
        fields.append((b"location", location.encode()))
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})
