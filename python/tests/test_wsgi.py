"""WSGI (PEP 3333) as an application and Larder see it."""

import hashlib
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import unittest
from typing import Any, Dict

from larder_double import ROOT, Client, Worker, WorkerCase, request

sys.path.insert(0, ROOT)

from larder import _http  # noqa: E402

FAILED_R7 = b"the application failed in request R7: `larder scripts` and the log have the traceback\n"


class Environ(WorkerCase):
    APP = "wsgi:wsgi_cases:application"

    def environ(self, target: str = "/", *fields: str, method: str = "GET") -> Dict[str, Any]:
        found: Dict[str, Any] = json.loads(self.worker.ask(target, *fields, method=method).body)
        return found

    def check(self, target: str, fields: str, expected: Dict[str, Any]) -> None:
        # Twice: the second time everything comes from the memos.
        for _ in range(2):
            with self.subTest(target=target, fields=fields):
                found = self.environ(target, *filter(None, fields.split("\n")))
                self.assertEqual({name: found.get(name) for name in expected}, expected)

    def test_target(self) -> None:
        self.check("/a%20b/%C3%A9?q=%20&x", "", {"PATH_INFO": "/a b/\xc3\xa9", "QUERY_STRING": "q=%20&x", "SCRIPT_NAME": ""})
        self.check("/a%20b?", "", {"RAW_URI": "/a%20b?", "REQUEST_URI": "/a%20b?", "QUERY_STRING": ""})
        self.check("/%2e%2e/%zz", "", {"PATH_INFO": "/../%zz"})
        self.check("//double?a?b", "", {"PATH_INFO": "//double", "QUERY_STRING": "a?b"})
        self.check("http://other.example/x?y", "", {"PATH_INFO": "/x", "RAW_URI": "http://other.example/x?y"})

    def test_server(self) -> None:
        self.check("/", "Host: a.example", {"SERVER_NAME": "a.example", "SERVER_PORT": "80", "HTTP_HOST": "a.example"})
        self.check("/", "Host: a.example:81", {"SERVER_NAME": "a.example", "SERVER_PORT": "81"})
        self.check("/", "Host: [::1]:81", {"SERVER_NAME": "[::1]", "SERVER_PORT": "81"})
        self.check("/", "Host: [::1]", {"SERVER_NAME": "[::1]", "SERVER_PORT": "80"})
        https = "Host: a.example\nX-Forwarded-Proto: http\nX-Forwarded-Proto: https"
        self.check("/", https, {"SERVER_PORT": "443", "wsgi.url_scheme": "https"})
        self.check("/", "X-Forwarded-Proto: javascript", {"wsgi.url_scheme": "http", "SERVER_PROTOCOL": "HTTP/1.1"})

    def test_client_address_is_the_last_one(self) -> None:
        spoofed = "X-Forwarded-For: 6.6.6.6\nX-Forwarded-For: 7.7.7.7, 10.0.0.1"
        self.check("/", spoofed, {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "6.6.6.6,7.7.7.7, 10.0.0.1"})

    def test_fields(self) -> None:
        self.check("/", "X-A: 1\nx-a:  2\t", {"HTTP_X_A": "1,2"})
        self.check("/", "Cookie: a=1\nCookie: b=2", {"HTTP_COOKIE": "a=1; b=2"})
        self.check("/", "Content-Type: a/b", {"CONTENT_TYPE": "a/b", "HTTP_CONTENT_TYPE": None})
        self.check("/", "Content-Length: 0", {"CONTENT_LENGTH": "0", "HTTP_CONTENT_LENGTH": None})
        self.check("/", "X-Name: caf\xe9\nX-Empty:", {"HTTP_X_NAME": "caf\xe9", "HTTP_X_EMPTY": ""})
        self.check("/", "X_A: 1\nProxy: evil\nContent_Length: 5", {"HTTP_X_A": None, "HTTP_PROXY": None, "CONTENT_LENGTH": None})

    def test_request_name(self) -> None:
        for fields in (
            "Larder-Request: R1\nX-Z: z",
            "X-Z: z\nLarder-Request: R1",
            "Larder-Request: spoofed\nX-Z: z\nLarder-Request: R1",
            "Larder-Request: R1\nX-Z: z",
            "X-Z: z\nlarder-request: R1",
        ):
            self.check("/", fields, {"larder.request": "R1", "HTTP_X_Z": "z", "HTTP_LARDER_REQUEST": None})
        self.check("/", "", {"larder.request": ""})

    def test_server_values(self) -> None:
        self.check("/", "", {"wsgi.version": [1, 0], "wsgi.multithread": False, "wsgi.multiprocess": True, "wsgi.run_once": False})

    def test_settings_are_not_in_the_environment(self) -> None:
        self.assertEqual(self.worker.ask("/settings").body, b"False")


class Bodies(WorkerCase):
    APP = "wsgi:wsgi_cases:application"

    def digest(self, data: bytes) -> bytes:
        return f"{len(data)} {hashlib.sha256(data).hexdigest()} b''".encode()

    def test_lengths(self) -> None:
        with self.worker.connect() as client:
            for size in (0, 1, 100, 16384, 65536, 300000):
                data = random.Random(size).randbytes(size)
                self.assertEqual(client.ask("/digest", method="POST", body=data).body, self.digest(data))

    def test_chunked(self) -> None:
        data = bytes(range(256)) * 300
        sizes = (1, 7, 255, 4096, 70000)
        with self.worker.connect() as client:
            for size in sizes:
                chunks = b"".join(
                    b"%X;name=value\r\n%b\r\n" % (len(data[at : at + size]), data[at : at + size]) for at in range(0, len(data), size)
                )
                client.send(request("/digest", "Transfer-Encoding: chunked", method="POST"))
                client.send(chunks + b"0\r\nX-Trailer: x\r\n\r\n")
                self.assertEqual(client.response().body, self.digest(data))

    def test_head_and_body_byte_by_byte(self) -> None:
        whole = request("/digest", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
        with self.worker.connect() as client:
            for at in range(len(whole)):
                client.send(whole[at : at + 1])
            self.assertEqual(client.response().body, self.digest(b"abc0123456789"))
            self.assertEqual(client.ask("/empty").status, 200)

    def test_ways_of_reading(self) -> None:
        expected = repr([b"", b"ab", b"c\n", b"de", b"f\n", [b"line\n"], [b"x\n", b"end"], b"", b"", b""]).encode()
        self.assertEqual(self.worker.ask("/read_ways", method="POST", body=b"abc\ndef\nline\nx\nend").body, expected)
        nothing = repr([b"", b"", b"", b"", b"", [], [], b"", b"", b""]).encode()
        self.assertEqual(self.worker.ask("/read_ways").body, nothing)

    def test_continue_is_sent_at_the_first_read(self) -> None:
        with self.worker.connect() as client:
            client.send(request("/digest", "Expect: 100-continue", "Content-Length: 3", method="POST"))
            self.assertEqual(client.response().status, 100)
            client.send(b"abc")
            self.assertEqual(client.response().body, self.digest(b"abc"))
            self.assertEqual(client.ask("/empty").status, 200)

    def test_no_continue_if_the_body_is_not_wanted(self) -> None:
        with self.worker.connect() as client:
            client.send(request("/ignore_body", "Expect: 100-continue", "Content-Length: 3", method="POST"))
            response = client.response()
            self.assertEqual((response.status, response.field("Connection")), (200, "close"))
            self.assertEqual(client.rest(), b"")

    def test_an_unread_body(self) -> None:
        with self.worker.connect() as client:
            self.assertEqual(client.ask("/ignore_body", method="POST", body=b"x" * 60000).body, b"ignored")
            self.assertEqual(client.ask("/empty").status, 200)
            client.send(request("/ignore_body", "Content-Length: 5", method="POST"))
            self.assertEqual(client.response().body, b"ignored")
            # The rest of the body and the next request come in one piece.
            client.send(b"12345" + request("/empty"))
            self.assertEqual(client.response().status, 200)
        with self.worker.connect() as client:
            client.send(request("/ignore_body", "Content-Length: 70000", method="POST"))
            response = client.response()
            self.assertEqual((response.body, response.field("Connection")), (b"ignored", "close"))
            self.assertEqual(client.rest(), b"")

    def test_response_while_the_body_comes(self) -> None:
        with self.worker.connect() as client:
            client.send(request("/echo_stream", "Transfer-Encoding: chunked", method="POST") + b"4\r\nabcd\r\n")
            client.until(b"abcd\r\n")
            client.send(b"4\r\nefgh\r\n")
            client.until(b"efgh\r\n")
            client.send(b"0\r\n\r\n")
            self.assertEqual(client.until(b"0\r\n\r\n"), b"")

    def test_client_leaves_in_the_body(self) -> None:
        with self.worker.connect() as client:
            client.send(request("/digest", "Content-Length: 10", method="POST", body=b"") + b"abc")
            client.socket.shutdown(socket.SHUT_WR)
            self.assertEqual(client.rest(), b"")


class BodyLimit(WorkerCase):
    APP = "wsgi:wsgi_cases:application"
    SETTINGS = {"body_bytes_max": 10}

    def test_limit(self) -> None:
        self.assertEqual(self.worker.ask("/digest", method="POST", body=b"0123456789").status, 200)
        self.assertEqual(self.worker.ask("/digest", method="POST", body=b"0123456789a").status, 413)
        with self.worker.connect() as client:
            client.send(request("/digest", "Transfer-Encoding: chunked", method="POST") + b"b\r\n")
            time.sleep(0.02)
            self.assertEqual(client.send(b"0123456789a\r\n0\r\n\r\n").response().status, 413)
        self.assertIn("BodyTooLong", self.worker.error()["traceback"])


class Responses(WorkerCase):
    APP = "wsgi:wsgi_cases:application"

    def closings(self) -> str:
        return self.worker.ask("/closings").body.decode()

    def test_framing(self) -> None:
        with self.worker.connect() as client:
            for target, body, framing in (
                ("/empty", b"", "0"),
                ("/ignore_body", b"ignored", "7"),
                ("/large", b"x" * 1000000, "1000000"),
                ("/generator", b"onetwo", None),
                ("/late_start", b"late", None),
                ("/large_pieces", b"y" * 1000000, None),
                ("/write", b"written twice returned", None),
                ("/length?6=onetwo", b"onetwo", "6"),
                ("/length?6=one,two", b"onetwo", "6"),
                ("/whole", b"onetwo", None),
            ):
                with self.subTest(target):
                    response = client.ask(target)
                    self.assertEqual((response.status, response.body, response.complete), (200, body, True))
                    self.assertEqual(response.field("Content-Length"), framing)
                    self.assertEqual(response.field("Transfer-Encoding"), None if framing else "chunked")
                    self.assertIsNone(response.field("Date"))
        self.assertEqual(self.closings(), "length,whole")

    def test_head(self) -> None:
        with self.worker.connect() as client:
            for target, length in (("/ignore_body", "7"), ("/generator", None), ("/empty", None), ("/length?6=onetwo", "6")):
                with self.subTest(target):
                    response = client.ask(target, method="HEAD")
                    self.assertEqual((response.status, response.field("Content-Length")), (200, length))
                    self.assertIsNone(response.field("Transfer-Encoding"))
            self.assertEqual(client.ask("/file", method="HEAD").status, 200)
            self.assertEqual(client.ask("/endless", method="HEAD").status, 200)
            self.assertEqual(client.ask("/ignore_body").body, b"ignored")
        self.assertEqual(self.closings(), "endless")

    def test_statuses_without_body(self) -> None:
        with self.worker.connect() as client:
            for status in ("204 No Content", "304 Not Modified"):
                response = client.ask("/status?" + status.replace(" ", "%20"))
                self.assertEqual(response.head, f"HTTP/1.1 {status}\r\nContent-Type: text/plain")
            self.assertEqual(client.ask("/status?299%20").body, b"body")
            self.assertEqual(client.ask("/status?404%20Not%20Found").status, 404)
        self.assertEqual(self.closings(), "status,status,status,status")

    def test_no_length_with_204(self) -> None:
        self.assertEqual(self.worker.ask("/no_content").head, "HTTP/1.1 204 No Content\r\nX-A: 1")

    def test_invalid_statuses(self) -> None:
        for status in ("200", "20%20OK", "100%20Continue", "2000%20OK", "OK%20200", ""):
            self.assertEqual(self.worker.ask(f"/status?{status}").status, 500, status)
            self.assertIn("status", self.worker.error()["traceback"])

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
        self.assertEqual(self.closings(), "length,length")

    def test_invalid_fields(self) -> None:
        for case, part in (
            ("crlf", "'X-Bad' holds CR"),
            ("lf", "'X-Bad' holds CR"),
            ("nul", "'X-Bad' holds CR"),
            ("name", "'X Bad' is not a token"),
            ("name-crlf", "is not a token"),
            ("hop", "'Connection' is the server's"),
            ("coding", "'transfer-encoding' is the server's"),
            ("number", "'X-Bad' is int"),
            ("bytes", "b'X-Bad' is bytes"),
            ("wide", "'X-Bad' is not latin-1"),
            ("length", "Content-Length '-1'"),
        ):
            with self.subTest(case):
                response = self.worker.ask(f"/field?{case}")
                self.assertEqual((response.status, response.body), (500, b"the application failed\n"))
                self.assertIn(part, self.worker.error()["traceback"])
        self.assertEqual(self.worker.ask("/latin").field("X-Name"), "caf\xe9")

    def test_exceptions_before_the_head(self) -> None:
        for target, part in (
            ("/fail", "nobody caught it"),
            ("/fail_started", "after start_response"),
            ("/fail_early", "before the head"),
            ("/exit", "SystemExit"),
            ("/interrupt", "KeyboardInterrupt"),
            ("/start_twice", "start_response() was called before"),
            ("/no_start", "did not call start_response()"),
            ("/text", "str where PEP 3333 wants bytes"),
        ):
            with self.subTest(target):
                response = self.worker.ask(target + "?q", "Larder-Request: R7", method="PUT")
                self.assertEqual((response.status, response.body), (500, FAILED_R7))
                self.assertEqual(response.field("Cache-Control"), "no-store")
                error = self.worker.error()
                self.assertIn(part, error.pop("traceback"))
                self.assertEqual(error, {"request": "R7", "method": "PUT", "target": target + "?q"})
        self.assertEqual(self.closings(), "fail_early")

    def test_tracebacks_begin_in_the_application(self) -> None:
        self.worker.ask("/fail")
        lines = self.worker.error()["traceback"].split("\n")
        self.assertIn("wsgi_cases.py", lines[1])

    def test_exceptions_after_the_head(self) -> None:
        for target, part in (("/fail_late", "after the head"), ("/exc_info_late", "too late")):
            response = self.worker.ask(target)
            self.assertEqual((response.status, response.body, response.complete), (200, b"begun", False))
            self.assertIn(part, self.worker.error()["traceback"])
        self.assertEqual(self.closings(), "fail_late")

    def test_exc_info_replaces_the_head(self) -> None:
        response = self.worker.ask("/exc_info")
        self.assertEqual((response.status, response.field("X-First"), response.field("X-Second")), (503, None, "2"))

    def test_files(self) -> None:
        content = b"0123456789" * 20000
        with self.worker.connect() as client:
            response = client.ask("/file")
            self.assertEqual((response.field("Content-Length"), response.body == content[5:]), ("199995", True))
            self.assertEqual(client.ask("/file_length?4").body, b"0123")
            self.assertEqual(client.ask("/file_gzip").body, b"unpacked")
            self.assertEqual(client.ask("/file_memory").body, b"in memory")
            response = client.ask("/file_length?11")
            self.assertEqual((response.body, response.complete), (b"0123456789", False))
        self.assertIn("1 bytes shorter", self.worker.error()["traceback"])
        self.assertEqual(self.closings(), "file_memory")

    def test_close_is_called_when_the_client_left(self) -> None:
        for target in ("/endless", "/ticking"):
            with self.worker.connect() as client:
                client.send(request(target)).until(b"\r\n\r\n")
            self.assertEqual(self.closings(), target[1:])
        with self.worker.connect() as client:
            client.send(request("/ticking")).until(b"\r\n\r\n")
            client.socket.shutdown(socket.SHUT_WR)
            client.rest()
        self.assertEqual(self.closings(), "ticking")

    def test_connection_close(self) -> None:
        with self.worker.connect() as client:
            self.assertEqual(client.ask("/empty", "Connection: close").field("Connection"), "close")
            self.assertEqual(client.rest(), b"")

    def test_output_of_the_application_is_logged(self) -> None:
        self.assertEqual(self.worker.ask("/prints").body, b"ok")
        for text in ("printed\n", "to wsgi.errors\n", "from a child\n"):
            self.assertTrue(self.worker.wait_for_log(text), text)

    def test_long_tracebacks_are_cut(self) -> None:
        self.worker.ask("/long_error")
        text = self.worker.error()["traceback"]
        self.assertIn("characters left out", text)
        self.assertTrue(text.startswith("Traceback") and text.endswith("é\n"))


class Children(WorkerCase):
    APP = "wsgi:wsgi_cases:application"

    def test_forked_children_have_no_part_in_the_service(self) -> None:
        began = time.monotonic()
        with self.worker.connect() as client:
            # The end of the connection is seen although a child lives on.
            response = client.ask("/fork")
            self.assertEqual((response.body, response.complete), (b"-15", False))
        self.assertIn("2 bytes shorter", self.worker.error()["traceback"])
        self.assertEqual(self.worker.ask("/empty").status, 200)
        self.assertLess(time.monotonic() - began, 1.5)


class ChildrenOfThreads(Children):
    SETTINGS = {"threads": 2}


class Debug(WorkerCase):
    APP = "wsgi:wsgi_cases:application"
    SETTINGS = {"debug": True}

    def test_traceback_is_shown(self) -> None:
        self.assertIn(b"ValueError: nobody caught it", self.worker.ask("/fail").body)
        self.worker.error()


class Validated(WorkerCase):
    """wsgiref's validator finds nothing to complain about."""

    APP = "wsgi:wsgi_validated:application"

    def test_validator(self) -> None:
        with self.worker.connect() as client:
            for target in ("/environ", "/whole", "/generator", "/write", "/length?3=abc"):
                self.assertEqual(client.ask(target).status, 200, target)
            self.assertEqual(client.ask("/read_ways", method="POST", body=b"abc").status, 200)
            self.assertEqual(client.ask("/environ", method="HEAD").status, 200)
        self.assertTrue(self.worker.silent(), self.worker.logged())
        self.assertNotIn("Error", self.worker.logged())


class Threads(WorkerCase):
    APP = "wsgi:wsgi_cases:application"
    SETTINGS = {"threads": 4}

    def test_four_at_once(self) -> None:
        clients = [self.worker.connect() for _ in range(4)]
        for _ in range(5):
            for client in clients:
                client.send(request("/meet"))
            self.assertEqual(len({client.response().body for client in clients}), 4)
        for client in clients:
            client.socket.close()

    def test_many_connections(self) -> None:
        clients = [self.worker.connect() for _ in range(30)]
        for _ in range(20):
            for client in clients:
                client.send(request("/ignore_body"))
            self.assertEqual({client.response().body for client in clients}, {b"ignored"})
        for client in clients:
            client.socket.close()

    def test_multithread(self) -> None:
        self.assertIs(json.loads(self.worker.ask("/environ").body)["wsgi.multithread"], True)


class ThreadsWithoutEpoll(Threads):
    APP = "wsgi:without_epoll:application"


class BodiesWithoutEpoll(Bodies):
    APP = "wsgi:without_epoll:application"


class Drain(unittest.TestCase):
    def drain(self, threads: int, app: str = "wsgi:wsgi_cases:application") -> None:
        worker = Worker(app, threads=threads).ready()
        idle = worker.connect()
        self.assertEqual(idle.ask("/empty").status, 200)
        with worker.connect() as client:
            client.send(request("/slow"))
            self.assertTrue(worker.wait_for_log("slow begins"))
            worker.process.send_signal(signal.SIGINT)
            worker.process.terminate()
            self.assertEqual(client.response().body, b"finished")
            self.assertEqual(client.rest(), b"")
        self.assertEqual(idle.rest(), b"")
        idle.socket.close()
        self.assertEqual(worker.stop(), 0)

    def test_one_thread(self) -> None:
        self.drain(1)

    def test_threads(self) -> None:
        self.drain(3)
        self.drain(3, "wsgi:without_epoll:application")


class Hostile(WorkerCase):
    """Bytes that Larder would never send close their connection and harm nobody else."""

    APP = "wsgi:wsgi_cases:application"
    HEADS = (
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"G\xe9T / HTTP/1.1\r\n\r\n",
        b"CONNECT a.example:443 HTTP/1.1\r\n\r\n",
        b"GET /\x01 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nNo colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-A : 1\r\n\r\n",
        b"GET / HTTP/1.1\r\n: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-A: 1\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-A: 1\nX-B: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-A: 1\rX-B: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-A: \0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    )
    BODIES = (b"zz\r\n", b"-1\r\n", b"1\r\nab\r\n", b"0x1\r\n", b"\r\n", b"f" * 20 + b"\r\n", b"1;" + b"x" * 5000)

    def tearDown(self) -> None:
        self.assertEqual(self.worker.ask("/empty").status, 200)
        super().tearDown()

    def test_heads(self) -> None:
        for head in self.HEADS:
            with self.subTest(head), self.worker.connect() as client:
                self.assertEqual(client.send(head).rest(), b"")

    def test_chunked_bodies(self) -> None:
        for body in self.BODIES:
            with self.subTest(body), self.worker.connect() as client:
                client.send(request("/digest", "Transfer-Encoding: chunked", method="POST"))
                try:
                    client.send(body)
                except BrokenPipeError:
                    pass
                client.rest()
        while not self.worker.silent():
            self.assertIn("MalformedRequest", self.worker.error()["traceback"])

    def test_endless_head(self) -> None:
        with self.worker.connect() as client:
            with self.assertRaises((BrokenPipeError, ConnectionResetError)):
                client.send(b"GET / HTTP/1.1\r\n")
                while True:
                    client.send(b"X-A: " + b"x" * 1000 + b"\r\n")

    def test_large_head(self) -> None:
        fields = [f"X-{n}: {'x' * 1000}" for n in range(200)]
        self.assertEqual(self.worker.ask("/empty", *fields).status, 200)

    def test_random_bytes(self) -> None:
        source = random.Random(20)
        whole = request("/digest", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\n0\r\n\r\n"
        for _ in range(300):
            data = bytearray(whole)
            for _ in range(source.randrange(1, 4)):
                data[source.randrange(len(data))] = source.randrange(256)
            with self.worker.connect() as client:
                client.send(bytes(data))
                client.socket.shutdown(socket.SHUT_WR)
                client.rest()
        while not self.worker.silent():
            self.worker.message()


class Heads(unittest.TestCase):
    def test_a_head_that_repeats_is_the_same_and_what_is_wrong_stays_wrong(self) -> None:
        for _ in range(3):
            self.assertEqual(_http.response_head("200 OK", [("X", "1")])[:2], ("HTTP/1.1 200 OK\r\nX: 1", -1))
            self.assertEqual(_http.response_head("200 OK", [["X", "1"]])[:2], ("HTTP/1.1 200 OK\r\nX: 1", -1))  # type: ignore[list-item]
            self.assertEqual(_http.response_head("404 No", [("X", "1")])[:2], ("HTTP/1.1 404 No\r\nX: 1", -1))
            for wrong in ([("X", 1)], [("X", "1\r\nY: 2")], [("Connection", "close")], [("X", "1"), ("X", b"1")]):
                with self.subTest(wrong), self.assertRaises(_http.InvalidResponse):
                    _http.response_head("200 OK", wrong)  # type: ignore[arg-type]
        for number in range(6000):
            self.assertEqual(_http.response_head("200 OK", [("Content-Length", str(number))])[1], number)
        self.assertEqual(_http.response_head("200 OK", [("X", "1")])[:2], ("HTTP/1.1 200 OK\r\nX: 1", -1))


class Prepared(WorkerCase):
    APP = "wsgi:wsgi_cases:application"

    def test_what_an_application_does_to_its_environ_is_gone_with_the_request(self) -> None:
        # From the third request on, environs are copies of one that was put together.
        for number in range(6):
            found = json.loads(self.worker.ask("/changes_environ?a", "X-A: 1", f"Larder-Request: R{number}").body)
            self.assertEqual(found, {"HTTP_X_A": "1", "QUERY_STRING": "a", "larder.request": f"R{number}", "added": None})
            other = json.loads(self.worker.ask("/changes_environ?b", "X-A: 1").body)
            self.assertEqual(other, {"HTTP_X_A": "1", "QUERY_STRING": "b", "larder.request": "", "added": None})
            other = json.loads(self.worker.ask("/changes_environ?a", "X-A: 2").body)
            self.assertEqual(other, {"HTTP_X_A": "2", "QUERY_STRING": "a", "larder.request": "", "added": None})

    def test_a_head_that_repeats_says_what_its_connection_needs(self) -> None:
        for _ in range(3):
            for _ in range(3):
                self.assertEqual(self.worker.ask("/declared").body, b"declared")
            closed = self.worker.ask("/declared", "Connection: close")
            self.assertEqual((closed.body, closed.field("connection")), (b"declared", "close"))
            self.assertEqual(self.worker.ask("/declared", method="HEAD").body, b"")


class TakenBack(unittest.TestCase):
    def test_a_request_that_was_taken_back_is_not_served(self) -> None:
        worker = Worker("wsgi:wsgi_cases:application").ready()
        folder = worker.directory.name

        def let_go(name: str) -> None:
            open(os.path.join(folder, name), "w").close()

        first, second, third, last = clients = [worker.connect() for _ in range(4)]
        for client in clients:
            client.ask("/empty")
        first.send(request("/waits?" + os.path.join(folder, "first")))
        self.assertTrue(worker.wait_for_log("waits for first"))
        # These three are seen at once, when the first one is over.
        for client, name in ((second, "second"), (third, "third"), (last, "last")):
            client.send(request("/waits?" + os.path.join(folder, name)))
            let_go(name) if name != "second" else None
        let_go("first")
        first.response()
        self.assertTrue(worker.wait_for_log("waits for second"))
        third.socket.shutdown(socket.SHUT_WR)
        let_go("second")
        second.response()
        self.assertEqual(third.rest(), b"")
        self.assertEqual(last.response().body, b"first,second,last")
        for client in clients:
            client.socket.close()
        self.assertEqual(worker.stop(), 0)


class OrderOfRequests(unittest.TestCase):
    """One thread serves in the order in which requests were sent: Larder knows by it whose turn it is."""

    def setUp(self) -> None:
        self.worker = Worker("wsgi:wsgi_cases:application").ready()
        self.addCleanup(self.worker.release)
        self.gate, *self.clients = [self.connect() for _ in range(6)]
        for client in (self.gate, *self.clients):
            client.ask("/empty")

    def connect(self) -> Client:
        client = self.worker.connect()
        self.addCleanup(client.socket.close)
        return client

    def target(self, name: str) -> str:
        return "/waits?" + os.path.join(self.worker.directory.name, name)

    def let_go(self, name: str) -> None:
        open(os.path.join(self.worker.directory.name, name), "w").close()

    def send(self, client: Client, name: str) -> None:
        self.let_go(name)
        client.send(request(self.target(name)))

    def occupy(self, client: Client, name: str) -> None:
        client.send(request(self.target(name)))
        self.assertTrue(self.worker.wait_for_log(f"waits for {name}\n"))

    def check(self, last: Client, expected: str) -> None:
        """Let the process go on, and compare what it served since with what is expected."""
        self.let_go("second-gate")
        self.assertTrue(last.response().body.decode().endswith(f"second-gate,{expected}"))

    def begin_batch(self, *sent: bytes) -> None:
        """Have requests of the first connections seen at once, and behind them one that occupies the process."""
        self.occupy(self.gate, "first-gate")
        for client, data in zip(self.clients, sent):
            client.send(data)
        self.clients[-1].send(request(self.target("second-gate")))
        self.let_go("first-gate")

    def end_batch(self) -> None:
        self.assertTrue(self.worker.wait_for_log("waits for second-gate\n"))

    def test_connections_that_were_answered_together(self) -> None:
        four = self.clients[:4]
        self.begin_batch(*[request("/empty")] * 4)
        for client in four:
            client.response()
        self.end_batch()
        for number in (4, 3, 2, 1):
            self.send(four[number - 1], str(number))
        self.check(four[0], "4,3,2,1")

    def test_a_connection_whose_body_came_later(self) -> None:
        self.begin_batch(request("/digest", "Content-Length: 3", method="POST"))
        posting, other = self.clients[:2]
        posting.send(b"abc")
        posting.response()
        self.end_batch()
        self.send(other, "other")
        self.send(posting, "posting")
        self.check(posting, "other,posting")

    def test_a_new_connection(self) -> None:
        self.occupy(self.gate, "second-gate")
        new = self.connect()
        self.send(new, "new")
        self.send(self.clients[0], "old")
        self.check(self.clients[0], "new,old")

    def test_a_new_connection_that_was_taken_back(self) -> None:
        self.occupy(self.gate, "second-gate")
        new = self.connect()
        self.send(new, "new")
        new.socket.shutdown(socket.SHUT_WR)
        self.send(self.clients[0], "old")
        self.check(self.clients[0], "old")
        self.assertEqual(new.rest(), b"")

    def test_heads_and_ends_that_one_read_does_not_take(self) -> None:
        client = self.clients[0]
        long = [f"X-{number}: {'x' * 1000}" for number in range(20)]
        for _ in range(2):
            self.assertEqual(client.ask("/empty", *long).status, 200)
        # A body and the end of what the client sends are there together.
        self.occupy(self.gate, "second-gate")
        client.send(request("/digest", method="POST", body=b"abc"))
        client.socket.shutdown(socket.SHUT_WR)
        self.let_go("second-gate")
        self.assertEqual(client.response().status, 200)
        self.assertEqual(client.rest(), b"")


class FullPipe(unittest.TestCase):
    def test_reports_that_nobody_reads(self) -> None:
        worker = Worker("wsgi:wsgi_cases:application").ready()
        for _ in range(3):
            self.assertEqual(worker.ask("/long_error").status, 500)
        # The lines that got through are whole, and the next one after a torn one begins a line of its own.
        self.assertIn("error", worker.message())
        worker.close_control()
        self.assertEqual(worker.ask("/fail").status, 500)
        self.assertTrue(worker.wait_for_log("nobody caught it"))
        self.assertEqual(worker.stop(), 0)


class Memory(unittest.TestCase):
    def test_limit_is_an_error_of_the_request(self) -> None:
        worker = Worker("wsgi:wsgi_cases:application", memory_bytes=120 * 1024 * 1024).ready()
        for _ in range(3):
            self.assertEqual(worker.ask("/memory").status, 500)
            text = worker.error()["traceback"]
            self.assertIn("MemoryError", text)
            self.assertIn("held.append", text)
            self.assertEqual(worker.ask("/large").status, 200)
        self.assertEqual(worker.stop(), 0)


class ConcurrentClients(unittest.TestCase):
    def test_clients_on_threads(self) -> None:
        worker = Worker("wsgi:wsgi_cases:application", threads=4).ready()
        failures = []

        def play(seed: int) -> None:
            source = random.Random(seed)
            with worker.connect() as client:
                for _ in range(40):
                    data = source.randbytes(source.randrange(1, 30000))
                    found = client.ask("/digest", method="POST", body=data).body.split(b" ")[1].decode()
                    if found != hashlib.sha256(data).hexdigest():
                        failures.append(seed)

        threads = [threading.Thread(target=play, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(worker.stop(), 0)


if __name__ == "__main__":
    unittest.main()
