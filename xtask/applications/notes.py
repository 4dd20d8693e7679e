"""A guest book in SQLite, which all processes of an application share, and bodies that are told by number."""

import hashlib
import html
import pathlib
import sqlite3
from typing import Iterator, List

FILE = pathlib.Path(__file__).with_name("notes.db")

PIECE = bytes(range(256)) * 256
"""64 KiB. A download is this, over and over, cut to the length that was asked for."""


def connect() -> sqlite3.Connection:
    database = sqlite3.connect(FILE, timeout=10)
    database.execute("CREATE TABLE IF NOT EXISTS note (text TEXT NOT NULL)")
    return database


def add(text: str) -> None:
    with connect() as database:
        database.execute("INSERT INTO note VALUES (?)", (text,))


def page(framework: str, name: str) -> str:
    notes: List[str] = [row[0] for row in connect().execute("SELECT text FROM note ORDER BY rowid")]
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return (
        f"<!doctype html><html lang='en'><title>{framework}</title><h1>{framework}</h1>"
        f"<p id='name'>{html.escape(name)}</p><ul id='notes'>{items}</ul>"
        f"<form method='post' action='/notes'><input name='text' id='text'><button>Write</button></form></html>"
    )


def pieces(length: int) -> Iterator[bytes]:
    while length > 0:
        yield PIECE[:length]
        length -= len(PIECE)


class Seen:
    """Length and digest of a body that came piece by piece."""

    def __init__(self) -> None:
        self._length = 0
        self._digest = hashlib.sha256()

    def take(self, piece: bytes) -> None:
        self._length += len(piece)
        self._digest.update(piece)

    def text(self) -> str:
        return f"{self._length} {self._digest.hexdigest()}"
