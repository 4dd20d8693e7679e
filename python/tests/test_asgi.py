"""ASGI 3 as an application and Larder see it."""

import hashlib
import json
import os
import random
import socket
import tempfile
import time
import unittest
from typing import Any, Dict

from larder_double import Worker, WorkerCase, request
from test_wsgi import Hostile as HostileToWsgi

FAILED_R7 = b"the application failed in request R7: `larder scripts` and the log have the traceback\n"


class Case(WorkerCase):
    APP = "asgi:asgi_cases:app"

    def happened(self, expected: str) -> None:
        """What the application noted, as soon as it did."""
        deadline = time.monotonic() + 5
        found = ""
        while len(found) < len(expected) and time.monotonic() < deadline:
            more = self.worker.ask("/happened").body.decode()
            found += ("," if found and more else "") + more
        self.assertEqual(found, expected)


class Scope(Case):
    def check(self, target: str, fields: str, expected: Dict[str, Any]) -> None:
        for _ in range(2):
            with self.subTest(target=target, fields=fields):
                found = json.loads(self.worker.ask(target, *filter(None, fields.split("\n"))).body)
                self.assertEqual({name: found.get(name) for name in expected}, expected)

    def test_target(self) -> None:
        path = {"path": "/a b/\xe9", "raw_path": "/a%20b/%C3%A9", "query_string": "q=%20", "root_path": ""}
        self.check("/a%20b/%C3%A9?q=%20", "", path)
        self.check("/%FF", "", {"path": "/\ufffd", "raw_path": "/%FF", "query_string": ""})
        self.check("/x", "", {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http"})

    def test_connection(self) -> None:
        self.check("/x", "X-Forwarded-For: 6.6.6.6\nX-Forwarded-For: 10.0.0.1", {"client": ["10.0.0.1", 0]})
        self.check("/x", "", {"client": None, "server": ["bbs.example", 80]})
        self.check("/x", "X-Forwarded-Proto: https", {"scheme": "https", "server": ["bbs.example", 443]})
        self.check("/x", "Host: a.example:81", {"server": ["a.example", 81]})

    def test_fields(self) -> None:
        fields = "X-A: 1\nx-a: 2\nX_A: 3\nProxy: 4\nLarder-Request: R1\nX-B: caf\xe9"
        headers = [["host", "bbs.example"], ["x-a", "1"], ["x-a", "2"], ["x-b", "caf\xe9"]]
        self.check("/x", fields, {"headers": headers, "extensions": {"larder.request": {"name": "R1"}}})

    def test_changes_stay_in_the_request(self) -> None:
        expected = json.dumps([1, {"started": "yes"}, "3.0"]).encode()
        for _ in range(3):
            self.assertEqual(self.worker.ask("/change_scope").body, expected)

    def test_context_is_that_of_the_request(self) -> None:
        with self.worker.connect() as client:
            for _ in range(3):
                self.assertEqual(client.ask("/context").body, b"unset,set,True")
                self.assertEqual(client.ask("/context_at_once").body, b"unset,True")
                self.assertEqual(client.ask("/timeout").body, b"timed out")


class Bodies(Case):
    def digest(self, data: bytes) -> bytes:
        return f"{len(data)} {hashlib.sha256(data).hexdigest()}".encode()

    def test_lengths(self) -> None:
        with self.worker.connect() as client:
            for target in ("/digest", "/slow_reader"):
                for size in (0, 1, 65536, 1000000):
                    data = random.Random(size).randbytes(size)
                    self.assertEqual(client.ask(target, method="POST", body=data).body, self.digest(data))

    def test_chunked(self) -> None:
        data = bytes(range(256)) * 1000
        with self.worker.connect() as client:
            for size in (1, 255, 70000):
                pieces = (data[at : at + size] for at in range(0, len(data), size))
                chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
                client.send(request("/digest", "Transfer-Encoding: chunked", method="POST") + chunks + b"0\r\n\r\n")
                self.assertEqual(client.response().body, self.digest(data))

    def test_head_and_body_byte_by_byte(self) -> None:
        whole = request("/digest", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
        with self.worker.connect() as client:
            for at in range(len(whole)):
                client.send(whole[at : at + 1])
            self.assertEqual(client.response().body, self.digest(b"abc0123456789"))
            self.assertEqual(client.ask("/empty").status, 200)

    def test_continue_is_sent_at_the_first_receive(self) -> None:
        with self.worker.connect() as client:
            client.send(request("/slow_reader", "Expect: 100-continue", "Content-Length: 3", method="POST"))
            self.assertEqual(client.response().status, 100)
            self.assertEqual(client.send(b"abc").response().body, self.digest(b"abc"))
        with self.worker.connect() as client:
            client.send(request("/ignore_body", "Expect: 100-continue", "Content-Length: 3", method="POST"))
            self.assertEqual(client.response().field("Connection"), "close")
            self.assertEqual(client.rest(), b"")

    def test_an_unread_body(self) -> None:
        with self.worker.connect() as client:
            self.assertEqual(client.ask("/ignore_body", method="POST", body=b"x" * 60000).body, b"ignored")
            self.assertEqual(client.ask("/empty").status, 200)
            client.send(request("/ignore_body", "Content-Length: 5", method="POST"))
            self.assertEqual(client.response().body, b"ignored")
            client.send(b"12")
            # The rest of the body and the next request come in one piece.
            client.send(b"345" + request("/empty"))
            self.assertEqual(client.response().status, 200)
        with self.worker.connect() as client:
            client.send(request("/ignore_body", "Content-Length: 70000", method="POST"))
            self.assertEqual(client.response().field("Connection"), "close")
            self.assertEqual(client.rest(), b"")

    def test_response_while_the_body_comes(self) -> None:
        with self.worker.connect() as client:
            client.send(request("/echo_stream", "Transfer-Encoding: chunked", method="POST") + b"4\r\nabcd\r\n")
            client.until(b"abcd\r\n")
            client.send(b"4\r\nefgh\r\n")
            client.until(b"efgh\r\n")
            client.send(b"0\r\n\r\n")
            self.assertEqual(client.until(b"0\r\n\r\n"), b"")

    def test_reading_waits_for_the_application(self) -> None:
        with self.worker.connect() as client:
            client.send(request("/slow_reader", "Content-Length: 5000000", method="POST"))
            began = time.monotonic()
            client.send(b"x" * 5000000)
            # The socket's buffers hold a part of this; the rest had to wait.
            self.assertGreater(time.monotonic() - began, 0.05)
            self.assertEqual(client.response().body, self.digest(b"x" * 5000000))

    def test_client_leaves_in_the_body(self) -> None:
        with self.worker.connect() as client:
            client.send(request("/digest", "Content-Length: 10", method="POST") + b"abc")
            client.socket.shutdown(socket.SHUT_WR)
            self.assertEqual(client.rest(), b"")
        self.happened("disconnect in body")


class BodyLimit(Case):
    SETTINGS = {"body_bytes_max": 10}

    def test_limit(self) -> None:
        self.assertEqual(self.worker.ask("/digest", method="POST", body=b"0123456789").status, 200)
        self.assertEqual(self.worker.ask("/digest", method="POST", body=b"0123456789a").status, 413)
        with self.worker.connect() as client:
            client.send(request("/digest", "Transfer-Encoding: chunked", method="POST") + b"b\r\n")
            self.assertEqual(client.send(b"0123456789a\r\n0\r\n\r\n").response().status, 413)
        self.happened("disconnect in body")


class Responses(Case):
    def test_framing(self) -> None:
        with self.worker.connect() as client:
            for target, body, framing in (
                ("/empty", b"", "0"),
                ("/ignore_body", b"ignored", "7"),
                ("/large", b"x" * 1000000, "1000000"),
                ("/stream", b"onetwo", None),
                ("/large_stream", b"y" * 2000000, None),
                ("/length?6=onetwo", b"onetwo", "6"),
                ("/length?6=one,two", b"onetwo", "6"),
                ("/status?599", b"body", "4"),
                ("/hop", b"body", "4"),
            ):
                with self.subTest(target):
                    response = client.ask(target)
                    self.assertEqual((response.body, response.complete), (body, True))
                    self.assertEqual(response.field("Content-Length"), framing)
                    self.assertEqual(response.field("Transfer-Encoding"), None if framing else "chunked")
                    self.assertIsNone(response.field("Connection"))

    def test_without_body(self) -> None:
        with self.worker.connect() as client:
            response = client.ask("/ignore_body", method="HEAD")
            self.assertEqual((response.status, response.field("Content-Length")), (200, "7"))
            self.assertEqual(client.ask("/stream", method="HEAD").field("Transfer-Encoding"), None)
            self.assertEqual(client.ask("/status?204").head, "HTTP/1.1 204 No Content\r\ncontent-type: text/plain")
            self.assertEqual(client.ask("/status?304").status, 304)
            self.assertEqual(client.ask("/no_content").head, "HTTP/1.1 204 No Content\r\nx-a: 1")
            self.assertEqual(client.ask("/ignore_body").body, b"ignored")

    def test_length_too_short_and_too_long(self) -> None:
        for target in ("/length?7=onetwo", "/length?7=one,two"):
            with self.worker.connect() as client:
                response = client.ask(target)
                self.assertEqual((response.body, response.complete), (b"onetwo", False))
            self.assertIn("1 bytes shorter", self.worker.error()["traceback"])
        for target in ("/length?5=onetwo", "/length?5=one,two"):
            with self.worker.connect() as client:
                self.assertEqual(client.ask(target).body, b"onetw")
                self.assertEqual(client.rest(), b"")
            self.assertIn("longer than the Content-Length", self.worker.error()["traceback"])

    def test_failures_before_the_head(self) -> None:
        for target, part in (
            ("/fail", "nobody caught it"),
            ("/fail_suspended", "after a wait"),
            ("/fail_started", "after the start"),
            ("/exit", "SystemExit"),
            ("/cancel", "CancelledError"),
            ("/nothing", "returned before its response"),
            ("/body_first", "before http.response.start"),
            ("/start_twice", "http.response.start was sent before"),
            ("/unknown_message", "'http.response.debug' is no message"),
            ("/status?100", "status 100"),
            ("/status?1000", "status 1000"),
            ("/field?crlf", "'x-bad' holds CR"),
            ("/field?lf", "'x-bad' holds CR"),
            ("/field?nul", "'x-bad' holds CR"),
            ("/field?name", "'x bad' is not a token"),
            ("/field?text", "field name 'x-bad' is str"),
            ("/field?value", "b'x-bad' is str"),
            ("/field?length", "Content-Length '-1'"),
        ):
            with self.subTest(target):
                response = self.worker.ask(target, "Larder-Request: R7")
                self.assertEqual((response.status, response.body), (500, FAILED_R7))
                self.assertEqual(response.field("Cache-Control"), "no-store")
                error = self.worker.error()
                self.assertIn(part, error.pop("traceback"))
                self.assertEqual(error, {"request": "R7", "method": "GET", "target": target})

    def test_failures_after_the_head(self) -> None:
        for target, part in (("/fail_late", "after the head"), ("/unfinished", "before its response was complete")):
            response = self.worker.ask(target)
            self.assertEqual((response.status, response.body, response.complete), (200, b"begun", False))
            self.assertIn(part, self.worker.error()["traceback"])
        with self.worker.connect() as client:
            self.assertEqual(client.ask("/after_end").body, b"done")
            self.assertIn("after the response was complete", self.worker.error()["traceback"])
            self.assertEqual(client.ask("/empty").status, 200)

    def test_disconnect(self) -> None:
        for half in (True, False):
            with self.worker.connect() as client:
                client.send(request("/wait_for_disconnect"))
                if half:
                    client.socket.shutdown(socket.SHUT_WR)
                    self.assertEqual(client.rest(), b"")
            self.happened("http.disconnect")

    def test_back_pressure(self) -> None:
        with self.worker.connect() as client:
            client.send(request("/endless")).until(b"\r\n\r\n")
            time.sleep(0.05)
        self.happened("endless True")

    def test_forked_children_have_no_part_in_the_service(self) -> None:
        began = time.monotonic()
        response = self.worker.ask("/fork")
        self.assertEqual((response.body, response.complete), (b"-15", False))
        self.assertIn("2 bytes shorter", self.worker.error()["traceback"])
        self.assertEqual(self.worker.ask("/empty").status, 200)
        self.assertLess(time.monotonic() - began, 1.5)

    def test_next_request_before_the_application_ends_the_response(self) -> None:
        with self.worker.connect() as client:
            for _ in range(3):
                self.assertEqual(client.ask("/late_end").body, b"long")
                self.assertEqual(client.ask("/happened").body, b"late end")
            self.assertEqual(client.ask("/late_end").body, b"long")
            for byte in request("/happened"):
                client.send(bytes((byte,)))
            self.assertEqual(client.response().body, b"late end")

    def test_head_of_an_endless_response(self) -> None:
        with self.worker.connect() as client:
            self.assertEqual(client.ask("/endless", method="HEAD").status, 200)
            self.assertEqual(client.ask("/ignore_body").body, b"ignored")
        self.happened("endless True")

    def test_background(self) -> None:
        with self.worker.connect() as client:
            self.assertEqual(client.ask("/background").body, b"done")
            self.assertEqual(client.ask("/empty").status, 200)
        self.happened("http.disconnect,background")

    def test_a_hundred_at_once(self) -> None:
        clients = [self.worker.connect().send(request("/meet")) for _ in range(100)]
        for client in clients:
            self.assertEqual(client.response().body, b"met")
            client.socket.close()


class Memory(unittest.TestCase):
    def test_limit_is_an_error_of_the_request(self) -> None:
        worker = Worker("asgi:asgi_cases:app", memory_bytes=120 * 1024 * 1024).ready()
        for _ in range(3):
            self.assertEqual(worker.ask("/memory").status, 500)
            self.assertIn("held.append", worker.error()["traceback"])
            self.assertEqual(worker.ask("/large").status, 200)
        self.assertEqual(worker.stop(), 0)


class Hostile(HostileToWsgi):
    APP = "asgi:asgi_cases:app"

    def tearDown(self) -> None:
        self.worker.ask("/happened")
        super().tearDown()


class Lifespan(unittest.TestCase):
    def load(self, text: str) -> Worker:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with open(os.path.join(folder.name, "spans.py"), "w") as file:
            file.write("import asyncio\n" + text)
        worker = Worker("asgi:spans", folder.name)
        self.addCleanup(worker.release)
        return worker

    def failed(self, text: str) -> Dict[str, str]:
        worker = self.load(text)
        found: Dict[str, str] = worker.message()["failed"]
        self.assertEqual(worker.process.wait(10), 3)
        return found

    def test_drain(self) -> None:
        worker = Worker("asgi:asgi_cases").ready()
        idle = worker.connect()
        self.assertEqual(idle.ask("/empty").status, 200)
        with worker.connect() as client:
            client.send(request("/slow"))
            self.assertTrue(worker.wait_for_log("slow begins"))
            worker.process.terminate()
            self.assertEqual(idle.rest(), b"")
            response = client.response()
            self.assertEqual((response.body, response.field("Connection")), (b"finished", "close"))
            self.assertEqual(client.rest(), b"")
        idle.socket.close()
        self.assertTrue(worker.wait_for_log("lifespan shutdown"))
        self.assertTrue(os.path.exists(worker.path))
        self.assertEqual(worker.stop(), 0)

    def test_unsupported(self) -> None:
        for body in ("assert scope['type'] == 'http'", "if scope['type'] == 'lifespan': return"):
            worker = self.load(
                f"""
async def app(scope, receive, send):
    {body}
    await send({{"type": "http.response.start", "status": 200}})
    await send({{"type": "http.response.body", "body": b"served"}})
"""
            ).ready()
            self.assertEqual(worker.ask("/").body, b"served")
            self.assertEqual(worker.stop(), 0)

    def test_startup_failed(self) -> None:
        text = "async def app(scope, receive, send):\n    await send({'type': 'lifespan.startup.failed', 'message': 'no database'})\n"
        self.assertIn("lifespan startup failed: no database", self.failed(text)["hint"])
        self.assertIn("1/0", self.failed(text + "    1/0\n")["traceback"])

    def test_other_interface(self) -> None:
        hint = self.failed("def app(environ, start_response): pass")["hint"]
        self.assertIn("write 'wsgi:' in place of 'asgi:'", hint)
        self.assertIn("does not take scope, receive and send", self.failed("def app(): pass")["hint"])
        worker = Worker("wsgi:asgi_cases:app")
        self.addCleanup(worker.release)
        self.assertIn("write 'asgi:' in place of 'wsgi:'", worker.message()["failed"]["hint"])

    def test_loop_runs_while_the_application_is_imported(self) -> None:
        text = "task = asyncio.get_running_loop().create_task(asyncio.sleep(0))\nasync def app(scope, receive, send): await task"
        self.load(text).ready()



if __name__ == "__main__":
    unittest.main()
