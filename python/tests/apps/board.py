"""A small board on SQLite: a list of threads, a thread, a form that posts. For measurements and tests."""

import html
import os
import sqlite3
import threading
from typing import Any, Callable, Dict, Iterable, List, Tuple
from urllib.parse import parse_qs

StartResponse = Callable[[str, List[Tuple[str, str]]], Any]

PATH = os.environ.get("BOARD", "board.db")
BODY_BYTES_MAX = 64 * 1024

_local = threading.local()


def database() -> sqlite3.Connection:
    """Return the connection of this thread."""
    found = getattr(_local, "database", None)
    if found is None:
        found = _local.database = sqlite3.connect(PATH, timeout=5, isolation_level=None)
        found.executescript(
            """
            pragma journal_mode = wal; pragma synchronous = normal;
            create table if not exists thread (id integer primary key, title text not null, changed integer not null);
            create table if not exists post (id integer primary key, thread integer not null, author text, text text);
            create index if not exists post_of_thread on post (thread);
            create index if not exists thread_changed on thread (changed);
            """
        )
    return found


def page(title: str, body: str) -> bytes:
    title = html.escape(title)
    return f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>{body}".encode()


def threads() -> bytes:
    rows = database().execute("select id, title from thread order by changed desc limit 50").fetchall()
    items = "".join(f'<li><a href="/thread/{number}">{html.escape(title)}</a>' for number, title in rows)
    return page("Board", f"<ul>{items}</ul>")


def thread(number: int) -> bytes:
    title = database().execute("select title from thread where id = ?", (number,)).fetchone()
    if title is None:
        raise LookupError
    rows = database().execute("select author, text from post where thread = ? order by id limit 50", (number,))
    return page(title[0], "".join(f"<p><b>{html.escape(author)}</b> {html.escape(text)}" for author, text in rows))


def post(fields: Dict[str, List[str]]) -> int:
    """Add a post, to a new thread where none is named. Return the thread."""
    author, text = fields.get("author", ["nobody"])[0][:100], fields.get("text", [""])[0][:10_000]
    work = database()
    work.execute("begin immediate")
    try:
        changed = "(select coalesce(max(changed), 0) + 1 from thread)"
        if "thread" in fields:
            number = int(fields["thread"][0])
            if not work.execute(f"update thread set changed = {changed} where id = ?", (number,)).rowcount:
                raise LookupError
        else:
            title = fields.get("title", ["untitled"])[0][:200]
            number = work.execute(f"insert into thread (title, changed) values (?, {changed})", (title,)).lastrowid or 0
        work.execute("insert into post (thread, author, text) values (?, ?, ?)", (number, author, text))
        work.execute("commit")
    except BaseException:
        work.execute("rollback")
        raise
    return number


def application(environ: Dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    path, headers = environ["PATH_INFO"], [("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-store")]
    status, body = "200 OK", b""
    try:
        if environ["REQUEST_METHOD"] == "POST":
            length = int(environ.get("CONTENT_LENGTH") or 0)
            if length > BODY_BYTES_MAX:
                status = "413 Content Too Large"
            else:
                number = post(parse_qs(environ["wsgi.input"].read(length).decode("utf-8", "replace")))
                status, headers = "303 See Other", [*headers, ("Location", f"/thread/{number}")]
        elif path.startswith("/thread/"):
            body = thread(int(path[len("/thread/") :]))
        else:
            body = threads()
    except (LookupError, ValueError):
        status, body = "404 Not Found", page("Not found", "")
    start_response(status, headers)
    return [body]
