"""What the tests of hooks share: frames as Larder sends them, and the replies as it reads them."""

import json
import marshal
import os
import struct
import sys
import tempfile
import textwrap
import unittest
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from larder_double import ROOT, Client, Worker

sys.path.insert(0, ROOT)

HEADER = struct.Struct("<IIHBB")


def call(stage: str = "request", hooks: Tuple[Any, ...] = (0,), **facts: Any) -> Tuple[Any, ...]:
    """The facts of a call, in the order of the protocol."""
    known: Dict[str, Any] = {
        "method": "GET", "scheme": "http", "host": "shop.example", "port": 80, "path": "/", "query": None,
        "client": "192.0.2.1", "name": "R1", "fields": (), "status": 0, "response_fields": (),
    }  # fmt: skip
    assert not set(facts) - set(known), facts
    known.update(facts)
    return (stage, hooks, *known.values())


def packed(facts: Any) -> bytes:
    """The payload of a call; of what is none, a marshal as it is."""
    if not isinstance(facts, tuple) or len(facts) not in (13, 14):
        return marshal.dumps(facts, 2)
    stage, hooks, method, scheme, host, port, path, query, client, name, fields, status, response_fields, *found = facts
    of_request = marshal.dumps((method, scheme, host, port, client, fields), 2)
    of_answer = marshal.dumps(response_fields, 2) if status or response_fields else b""
    return marshal.dumps((stage, hooks, name, path, query, of_request, status, of_answer, *found), 2)


def frame(id: int, payload: Any, kind: int = 1) -> bytes:
    data = payload if isinstance(payload, bytes) else packed(payload)
    return HEADER.pack(len(data), id, 0, kind, 0) + data


class Reply(NamedTuple):
    id: int
    kind: int
    said: Dict[str, Any]


def split(data: bytes) -> List[Reply]:
    """Cut bytes into replies."""
    replies = []
    while data:
        _, id, _, kind, zero = HEADER.unpack_from(data)
        assert zero == 0, data
        replies.append(Reply(id, kind, json.loads(data[12 + 8 * len(times_of(data)) : 12 + length_of(data)] or b"{}")))
        data = data[12 + length_of(data) :]
    return replies


def length_of(data: bytes) -> int:
    """The length of the payload of a frame that has come in whole."""
    length: int = HEADER.unpack_from(data)[0]
    assert len(data) >= 12 + length, data
    return length


def times_of(data: bytes) -> Tuple[int, ...]:
    """The nanoseconds that the hooks of a call took, as its reply has them."""
    many = HEADER.unpack_from(data)[2]
    assert length_of(data) >= 8 * many, data
    return struct.unpack_from(f"<{many}Q", data, 12)


def receive(client: Client) -> Reply:
    head = client.take(12)
    assert len(head) == 12, f"the connection ended: {head!r}"
    return split(head + client.take(HEADER.unpack(head)[0]))[0]


class HooksCase(unittest.TestCase):
    """Tests that write files of hooks and start workers with them."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def write(self, text: str, name: str = "policy.py") -> str:
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        return path

    def start(self, app: str = "hooks:policy.py", **settings: Any) -> Worker:
        worker = Worker(app, self.folder, **settings)
        self.addCleanup(worker.release)
        return worker

    def ready(self, text: Optional[str] = None) -> Worker:
        if text is not None:
            self.write(text)
        return self.start().ready()

    def hint(self, text: Optional[str] = None, app: str = "hooks:policy.py") -> str:
        """Start a worker that can't load, and return its hint."""
        if text is not None:
            self.write(text)
        worker = self.start(app)
        message = worker.message()["failed"]
        self.assertEqual(worker.process.wait(10), 3)
        self.traceback: str = message["traceback"]
        hint: str = message["hint"]
        return hint
