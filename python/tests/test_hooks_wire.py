"""Hooks as Larder calls them: frames over connections of a worker."""

import marshal
import os
import select
import struct
import time
import unittest
from typing import Any, Dict, List, Tuple

from hooks_double import HEADER, HooksCase, Reply, call, frame, receive, split, times_of

from larder._calls import PAYLOAD_BYTES_MAX

POLICY = """
import larder

@larder.request
def plan(req):
    req.key.add(req.headers.get("x-plan", "free"))

@larder.request(path="/cart/*", remember="60s")
def cart(req):
    if req.method == "POST":
        return larder.pass_()
    if "session" not in req.cookies:
        return larder.redirect("/login", 303)

@larder.fetched(status=[200, 404])
def keep(req, resp):
    resp.ttl, resp.grace = 30, "5m"
    resp.tags.add("api")

@larder.page("/hello")
def hello(req):
    return "Hello, World!"

@larder.request(host=["a.example", "*.B.example"], field="X-Slow", method="get")
def fails(req):
    raise ValueError("caf\\xe9")

@larder.request
async def waits(req):
    import asyncio
    await asyncio.sleep(0)
    req.route = await asyncio.wait_for(asyncio.sleep(0.001, "b"), 5)
"""

PLAIN = frame(1, call())
PLAIN_REPLY = Reply(1, 3, {"hook": 0, "line": 6, "read": ["field:x-plan"], "key": ["free"]})


class Wire(HooksCase):
    policy = POLICY

    def setUp(self) -> None:
        super().setUp()
        self.path = self.write(self.policy)
        self.worker = self.start()
        self.loaded = self.worker.message()["ready"]

    def ask(self, *frames: bytes) -> List[Reply]:
        with self.worker.connect() as client:
            client.send(b"".join(frames))
            return [receive(client) for _ in frames]

    def test_ready(self) -> None:
        self.assertEqual(self.loaded["interface"], "hooks")
        self.assertEqual(self.loaded["threads"], 1)
        self.assertEqual(self.loaded["files"], [self.path])
        common: Dict[str, Any] = {
            "hosts": [],
            "paths": [],
            "methods": [],
            "statuses": [],
            "fields": [],
            "remember_ms": None,
            "file": self.path,
        }
        self.assertEqual(
            self.loaded["hooks"],
            [
                {**common, "stage": "request", "name": "plan", "line": 4},
                {**common, "stage": "request", "name": "cart", "line": 8, "paths": ["/cart/*"], "remember_ms": 60000},
                {**common, "stage": "fetched", "name": "keep", "line": 15, "statuses": [200, 404]},
                {**common, "stage": "page", "name": "hello", "line": 20, "paths": ["/hello"]},
                {
                    **common, "stage": "request", "name": "fails", "line": 24, "hosts": ["a.example", "*.b.example"],
                    "fields": ["x-slow"], "methods": ["GET"],
                },
                {**common, "stage": "request", "name": "waits", "line": 28},
            ],
        )  # fmt: skip
        self.assertEqual(self.worker.stop(), 0)

    def test_replies(self) -> None:
        shop: Dict[str, Any] = {"path": "/cart/1", "fields": (("cookie", "session=1"), ("x-plan", "gold"))}
        replies = self.ask(
            frame(5, call(hooks=(0, 1), **shop)),
            frame(6, call(hooks=(1,), **shop)),
            frame(7, call(hooks=(0, 1))),
            frame(8, call(hooks=(1, 0), method="POST")),
            frame(9, call("fetched", (2,), status=200)),
            frame(0xFFFFFFFF, call("page", (3,))),
            frame(11, call(hooks=(5,))),
        )
        self.assertEqual(
            replies,
            [
                Reply(5, 3, {"hook": 0, "line": 6, "read": ["field:x-plan", "method", "field:cookie"], "key": ["gold"]}),
                Reply(6, 2, {"read": ["method", "field:cookie"]}),
                Reply(7, 3, {
                    "hook": 1, "line": 13, "read": ["field:x-plan", "method", "field:cookie"], "key": ["free"],
                    "respond": {"status": 303, "reason": "", "fields": [["location", "/login"]], "body": ""},
                }),
                Reply(8, 3, {"hook": 1, "line": 11, "read": ["method"], "pass": True}),
                Reply(9, 3, {"hook": 2, "line": 18, "ttl_ms": 30000, "grace_ms": 300000, "tags": ["api"]}),
                Reply(0xFFFFFFFF, 3, {"hook": 3, "line": 20, "respond": {
                    "status": 200, "reason": "", "fields": [["content-type", "text/plain; charset=utf-8"]],
                    "body": "SGVsbG8sIFdvcmxkIQ==",
                }}),
                Reply(11, 3, {"hook": 5, "line": 32, "route": "b", "route_by": [5, 32]}),
            ],
        )  # fmt: skip

    def test_a_failure_is_reported_and_the_next_calls_go_on(self) -> None:
        failed, plain = self.ask(frame(1, call(hooks=(4, 0), path="/x", query="secret=1", name="R7")), PLAIN)
        self.assertEqual((failed.id, failed.kind, failed.said["hook"], plain), (1, 4, 4, PLAIN_REPLY))
        self.assertIn(f'File "{self.path}", line 26, in fails', failed.said["traceback"])
        error = self.worker.error()
        self.assertEqual(error, {"request": "R7", "method": "GET", "target": "/x", "traceback": failed.said["traceback"]})

    def test_calls_with_the_same_facts_differ_in_all_else(self) -> None:
        worker = self.ready("""
            import larder
            @larder.page("/one")
            def one(req):
                return "same"
            @larder.page("/two")
            def two(req):
                return "same"
            @larder.request
            def tells(req):
                req.key.add(f"{req.name} {req.path} {req.query.get('a')} {req.headers.get('x-a')} {req.client}")
        """)
        with worker.connect() as client:

            def key(**facts: Any) -> str:
                client.send(frame(1, call(hooks=(2,), **facts)))
                said: str = receive(client).said["key"][0]
                return said

            same: Dict[str, Any] = {"fields": (("x-a", "b"), ("x-a", "c"))}
            self.assertEqual(key(name="R1", path="/a", query="a=1", **same), "R1 /a 1 b, c 192.0.2.1")
            self.assertEqual(key(name="R2", path="/b", **same), "R2 /b None b, c 192.0.2.1")
            self.assertEqual(key(fields=(("x-a", "c"),)), "R1 / None c 192.0.2.1")
            self.assertEqual(key(client="192.0.2.2", **same), "R1 / None b, c 192.0.2.2")
            for number in range(600):
                self.assertEqual(key(fields=(("x-a", str(number)),)), f"R1 / None {number} 192.0.2.1")
            for _ in range(2):
                client.send(frame(1, call(hooks=(0,))) + frame(2, call(hooks=(1,))))
                one, two = receive(client).said, receive(client).said
                self.assertEqual((one["hook"], two["hook"], two["line"] - one["line"]), (0, 1, 3))
                self.assertEqual(one["respond"], two["respond"])

    def test_a_page_whose_text_repeats_tells_what_it_read_and_changed_this_time(self) -> None:
        worker = self.ready("""
            import itertools, larder
            numbers = itertools.count()
            @larder.request
            def before(req):
                pass
            @larder.page("/**")
            def page(req):
                number = next(numbers) % 3
                if number == 1:
                    req.headers.get("x-a")
                if number == 2:
                    req.key.add("k")
                return "same"
        """)
        with worker.connect() as client:
            for number in range(9):
                client.send(frame(number, call("page", (1,))))
                said = receive(client).said
                self.assertEqual((said["hook"], said["respond"]["body"]), (1, "c2FtZQ=="))
                self.assertEqual(said.get("read"), ["field:x-a"] if number % 3 == 1 else None)
                self.assertEqual(said.get("key"), ["k"] if number % 3 == 2 else None)
                self.assertEqual(said["line"], 7)

    def test_split_at_every_byte(self) -> None:
        data = frame(1, call(fields=(("x-a", "b"),))) + PLAIN
        with self.worker.connect() as client:
            for cut in range(len(data) + 1):
                client.send(data[:cut])
                client.send(data[cut:])
                self.assertEqual([receive(client), receive(client)], [PLAIN_REPLY] * 2)
            for at in range(len(data)):
                client.send(data[at : at + 1])
            self.assertEqual([receive(client), receive(client)], [PLAIN_REPLY] * 2)

    def test_long_frames(self) -> None:
        fields = tuple((f"x-{number}", "v" * 10_000) for number in range(100))
        with self.worker.connect() as client:
            for _ in range(3):
                client.send(frame(1, call(fields=fields)) + PLAIN)
                self.assertEqual([receive(client), receive(client)], [PLAIN_REPLY] * 2)

    def test_no_fields_of_an_answer_are_no_fields_however_many_were_there_before(self) -> None:
        bare = frame(1, call("fetched", (2,)))
        with self.worker.connect() as client:
            for number in range(600):
                if number % 100 == 0:
                    client.send(bare)
                    self.assertEqual(receive(client).kind, 3)
                client.send(frame(1, call("fetched", (2,), status=200, response_fields=(("x-number", str(number)),))))
                self.assertEqual(receive(client).kind, 3)

    def test_a_reply_says_how_long_each_hook_took_that_ran(self) -> None:
        worker = self.ready("""
            import larder, time
            @larder.request
            def quick(req):
                pass
            @larder.request
            def slow(req):
                time.sleep(0.02)
            @larder.request
            async def fails(req):
                time.sleep(0.01)
                raise ValueError
            @larder.request
            def never(req):
                pass
        """)
        with worker.connect() as client:
            client.send(frame(1, call(hooks=(0,))))
            head = client.take(12)
            reply = head + client.take(HEADER.unpack(head)[0])
            self.assertEqual(len(times_of(reply)), 1)
            client.send(frame(2, call(hooks=(0, 1, 2, 3))))
            head = client.take(12)
            quick, slow, fails = times_of(head + client.take(HEADER.unpack(head)[0]))
            self.assertTrue(slow >= 20_000_000 > quick and fails >= 10_000_000, (quick, slow, fails))

    @unittest.skipUnless(hasattr(os, "memfd_create"), "there is no memfd_create here")
    def test_the_call_that_runs_is_noted_with_its_hook_and_its_time(self) -> None:
        self.write("""\
            import larder, os, time
            @larder.request
            def quick(req):
                pass
            @larder.request
            def waits(req):
                while not os.path.exists(req.path):
                    time.sleep(0.001)
        """)
        descriptor = os.memfd_create("running")
        self.addCleanup(os.close, descriptor)
        os.ftruncate(descriptor, 16)
        worker = self.start(running=descriptor).ready()
        note = struct.Struct("<QIHH")

        def noted() -> Tuple[int, ...]:
            return note.unpack(os.pread(descriptor, 16, 0))

        self.assertEqual(noted(), (0, 0, 0, 0))
        gate = os.path.join(self.folder, "gate")
        before = time.monotonic_ns()
        with worker.connect() as one, worker.connect() as other:
            one.send(frame(7, call(hooks=(0,))) + frame(8, call(hooks=(0, 1), path=gate)))
            while noted()[1:3] != (8, 1):
                time.sleep(0.001)
            other.send(frame(9, call(hooks=(0,))))
            begun, number, hook, zero = noted()
            self.assertTrue(before <= begun <= time.monotonic_ns())
            self.assertEqual((number, hook, zero), (8, 1, 0), "a call that waits is not noted")
            with open(gate, "w", encoding="ascii"):
                pass
            self.assertEqual([receive(one).id, receive(one).id, receive(other).id], [7, 8, 9])
        while noted() != (0, 0, 0, 0):
            time.sleep(0.001)

    @unittest.skipUnless(hasattr(os, "memfd_create"), "needs Linux")
    def test_nobody_writes_into_the_note_by_a_descriptor(self) -> None:
        self.write("""
            import larder, os

            @larder.request
            def writes(req):
                for fd in range(3, 64):
                    try:
                        os.pwrite(fd, b"\\xff" * 16, 0)
                    except OSError:
                        pass
                with open(req.path, "w"):
                    pass
                while os.path.exists(req.path):
                    pass
        """)
        descriptor = os.memfd_create("running", os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, descriptor)
        os.ftruncate(descriptor, 16)
        worker = self.start(running=descriptor).ready()
        gate = os.path.join(self.folder, "gate")
        with worker.connect() as client:
            client.send(frame(7, call(path=gate)))
            while not os.path.exists(gate):
                time.sleep(0.001)
            noted = os.pread(descriptor, 16, 0)
            os.unlink(gate)
            self.assertEqual(receive(client).id, 7)
        self.assertEqual(struct.unpack("<QIHH", noted)[1:], (7, 0, 0))
        with self.assertRaises(PermissionError):
            os.pwrite(descriptor, b"x", 0)

    def test_broken_frames_end_their_connection_alone(self) -> None:
        good = call()
        broken = [
            HEADER.pack(PAYLOAD_BYTES_MAX + 1, 1, 0, 1, 0),
            frame(1, good, kind=2),
            HEADER.pack(5, 1, 1, 1, 0) + b"hello",
            HEADER.pack(5, 1, 0, 1, 1) + b"hello",
            *(
                frame(1, payload)
                for payload in (
                    b"", b"hello", b"(\xff\xff\xff\x7f", b"(" * 5000, marshal.dumps(good, 2)[:-5], [*good], good[:-1], (*good, 1),
                    call(hooks=(9,)), call(hooks=(-1,)), call(hooks=()), call(hooks=(True,)), call(hooks=([],)), call(hooks=("a",)),
                    call("page"), call("nonsense"), call(port="80"), call(query=5), call(fields=(("a",),)), call(fields=("ab",)),
                    call(fields=(("a", 1),)), call(fields=(1,)), call(response_fields=((b"a", "b"),)),
                )
            ),
        ]  # fmt: skip
        with self.worker.connect() as other:
            for data in broken:
                with self.subTest(data[:60]), self.worker.connect() as client:
                    client.send(PLAIN + data + PLAIN)
                    self.assertEqual(split(client.rest()), [PLAIN_REPLY])
                other.send(PLAIN)
                self.assertEqual(receive(other), PLAIN_REPLY)
        self.assertIn("a connection is closed: a frame of kind 2", self.worker.logged())

    def test_connections_share_the_worker(self) -> None:
        clients = [self.worker.connect() for _ in range(8)]
        for number, client in enumerate(clients):
            client.send(PLAIN[:20] + PLAIN[20:] * (number % 2))
        for client in clients[::2]:
            client.send(PLAIN[20:])
        for client in clients:
            with client:
                self.assertEqual(receive(client), PLAIN_REPLY)

    def test_who_does_not_read_does_not_stop_others(self) -> None:
        with self.worker.connect() as deaf, self.worker.connect() as other:
            deaf.socket.setblocking(False)
            data = b"".join(frame(id, call()) for id in range(4096))
            sent = 0
            try:
                while True:
                    sent += deaf.socket.send(data[sent % len(data) :])
            except BlockingIOError:
                pass
            other.send(PLAIN)
            self.assertEqual(receive(other), PLAIN_REPLY)
            # When it reads again it misses nothing.
            deaf.socket.settimeout(10)
            whole = sent // len(data) * 4096 + len(split_calls(data[: sent % len(data)]))
            for number in range(whole):
                self.assertEqual(receive(deaf).id, number % 4096)

    def test_a_slow_hook_does_not_keep_the_replies_of_calls_before_it(self) -> None:
        worker = self.ready("""
            import larder, time
            @larder.request
            def slow(req):
                time.sleep(0.01)
            @larder.request
            def hangs(req):
                while True:
                    pass
        """)
        with worker.connect() as client:
            client.send(frame(1, call()) + frame(2, call()) + frame(3, call(hooks=(1,))))
            self.assertEqual([receive(client), receive(client)], [Reply(1, 2, {}), Reply(2, 2, {})])
        worker.process.kill()

    def test_sigterm_serves_what_was_sent(self) -> None:
        with self.worker.connect() as client:
            client.send(PLAIN)
            receive(client)
            client.send(PLAIN * 100)
            self.worker.process.terminate()
            self.assertEqual([receive(client) for _ in range(100)], [PLAIN_REPLY] * 100)
            self.assertEqual(client.rest(), b"")
            self.assertEqual(self.worker.process.wait(10), 0)

    def test_sigterm_while_nothing_happens(self) -> None:
        with self.worker.connect():
            self.assertEqual(self.worker.stop(), 0)


@unittest.skipUnless(hasattr(select, "epoll"), "without epoll this is what all tests do")
class WireWithoutEpoll(Wire):
    """The same in a process that has no epoll."""

    # At the end, so that the hooks stand in the same lines.
    policy = POLICY + "\nimport select\ndel select.epoll\n"


def split_calls(data: bytes) -> List[int]:
    """The ids of the calls that are complete."""
    ids = []
    while len(data) >= 12 and len(data) >= 12 + HEADER.unpack_from(data)[0]:
        length, id, *_ = HEADER.unpack_from(data)
        ids.append(id)
        data = data[12 + length :]
    return ids


if __name__ == "__main__":
    unittest.main()
