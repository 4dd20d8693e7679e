"""Hooks that fail, and values that can't be taken: what Larder and the author are told."""

import asyncio
import unittest
from typing import Any, Dict, List, Tuple

from hooks_double import HooksCase, Reply, call, frame, receive, split

import larder
from larder import _definitions
from larder._calls import PAYLOAD_BYTES_MAX, Calls, Frames
from larder._decisions import BODY_BYTES_MAX
from larder._runtime import format_error


def play(stage: str, *functions: Any, **facts: Any) -> Tuple[Reply, List[Tuple[str, str, str]]]:
    """Run hooks, and return the reply and what was reported."""
    with _definitions.collected() as hooks:
        for function in functions:
            {"request": larder.request, "fetched": larder.fetched, "page": larder.page("/**")}[stage](function)
    reports: List[Tuple[str, str, str]] = []

    def report(name: str, method: str, target: str, error: BaseException) -> str:
        reports.append((name, method, target))
        return format_error(error)

    calls = Calls(hooks, report)
    data, is_sound = Frames(calls).feed(frame(3, call(stage, tuple(range(len(hooks))), **facts)))
    calls.close()
    assert is_sound
    return split(data)[0], reports


class Returns(unittest.TestCase):
    def decided(self, stage: str, value: Any) -> Dict[str, Any]:
        reply, reports = play(stage, (lambda req, resp: value) if stage == "fetched" else (lambda req: value))
        self.assertEqual((reply.kind, reports), (3, []), reply.said.get("traceback"))
        return {name: said for name, said in reply.said.items() if name not in ("hook", "line")}

    def test_responses(self) -> None:
        html, plain = "text/html; charset=utf-8", "text/plain; charset=utf-8"
        cases: List[Tuple[str, Any, int, List[List[str]], str]] = [
            ("page", "Hello", 200, [["content-type", plain]], "SGVsbG8="),
            ("page", "", 200, [], ""),
            ("page", " <p>", 200, [["content-type", html]], "IDxwPg=="),
            ("page", "<!doctype html>", 200, [["content-type", html]], "PCFkb2N0eXBlIGh0bWw+"),
            ("page", b"<p>", 200, [["content-type", html]], "PHA+"),
            ("page", "a<p>", 200, [["content-type", plain]], "YTxwPg=="),
            ("page", "< 5", 200, [["content-type", plain]], "PCA1"),
            ("page", "\u00e9", 200, [["content-type", plain]], "w6k="),
            ("page", b"\xff\xfe", 200, [], "//4="),
            ("request", larder.Response("x", 503, {"Retry-After": "60"}), 503, [["retry-after", "60"], ["content-type", plain]], "eA=="),
            ("request", larder.Response(b"{}", headers={"content-type": "application/json"}), 200,
                [["content-type", "application/json"]], "e30="),
            ("request", larder.Response(headers=[("set-cookie", "a"), ("set-cookie", "b")]), 200,
                [["set-cookie", "a"], ["set-cookie", "b"]], ""),
            ("request", larder.redirect("/login"), 302, [["location", "/login"]], ""),
            ("request", larder.redirect("https://x.example/\u00e9 ?a=%20#b", 308), 308,
                [["location", "https://x.example/%C3%A9%20?a=%20#b"]], ""),
            ("request", larder.deny(), 403, [], ""),
            ("page", larder.deny("<b>", 401), 401, [["content-type", plain]], "PGI+"),
        ]  # fmt: skip
        for stage, value, status, fields, body in cases:
            with self.subTest(value=value):
                respond = {"status": status, "reason": "", "fields": fields, "body": body}
                self.assertEqual(self.decided(stage, value), {"respond": respond})

    def test_passes(self) -> None:
        for stage in ("request", "page", "fetched"):
            self.assertEqual(self.decided(stage, larder.pass_()), {"pass": True})

    def test_changes_before_a_decision_are_told(self) -> None:
        def route(req: larder.Request) -> None:
            req.route = "b"

        def stop(req: larder.Request) -> larder.Outcome:
            req.key.add("k")
            return larder.pass_()

        def never(req: larder.Request) -> None:
            raise AssertionError

        line = stop.__code__.co_firstlineno + 2
        reply, _ = play("request", route, stop, never)
        route_by = [0, route.__code__.co_firstlineno + 1]
        wanted = {"hook": 1, "line": line, "key": ["k"], "route": "b", "route_by": route_by, "pass": True}
        self.assertEqual(reply.said, wanted)

    def test_later_hooks_see_changes(self) -> None:
        def first(req: larder.Request) -> None:
            req.path = "/b"
            req.headers["x-a"] = "1"

        def second(req: larder.Request) -> None:
            assert (req.path, req.headers["x-a"]) == ("/b", "1")

        reply, reports = play("request", first, second)
        line = first.__code__.co_firstlineno + 2
        wanted = {"hook": 0, "line": line, "path": "/b", "path_by": [0, line - 1], "set": [["x-a", "1"]]}
        self.assertEqual((reply.said, reports), (wanted, []))

    def test_a_response_made_once_can_be_returned_often(self) -> None:
        response = larder.Response("x")
        self.assertEqual(self.decided("request", response), self.decided("request", response))
        self.assertEqual((response.status, response.body, repr(response)), (200, b"x", "<larder.Response 200, 1 bytes>"))
        response.headers.append(("x", "y"))
        self.assertEqual(response.headers, [("content-type", "text/plain; charset=utf-8")])
        with self.assertRaises(AttributeError):
            response.status = 5  # type: ignore[misc]


class Wrong(unittest.TestCase):
    def test_returned_values(self) -> None:
        response = larder.Response("x")
        cases: List[Tuple[str, Any, str]] = [
            ("request", "text", "a request hook may return None (go on), larder.Response(...), larder.redirect(...)"),
            ("request", 5, "not int 5"),
            ("request", True, "not bool True"),
            ("request", larder.pass_, "not function"),
            ("request", {"a": "x" * 100}, "not dict {'a': 'xxx"),
            ("page", {"a": 1}, "a page may return a str or bytes, larder.Response(...)"),
            ("page", ("x", 404), "not tuple"),
            ("page", "\ud800", "characters that UTF-8 can't encode"),
            ("page", "x" * (BODY_BYTES_MAX + 1), f"longer than {BODY_BYTES_MAX}"),
            ("fetched", response, "a fetched hook may return None (go on) or larder.pass_() (don't store)"),
            ("fetched", "text", "not str 'text'"),
        ]
        for stage, value, message in cases:
            with self.subTest(stage=stage, message=message):

                def hook(req: larder.Request, resp: Any = None, value: Any = value) -> Any:
                    return value

                reply, reports = play(stage, hook, method="PUT", path="/a", query="b", name="R9")
                self.assertEqual((reply.kind, reply.said["hook"], reports), (4, 0, [("R9", "PUT", "/a")]))
                self.assertIn(message, reply.said["traceback"])
                self.assertIn(f"{__file__}:{hook.__code__.co_firstlineno}: hook: ", reply.said["traceback"])

    def test_arguments(self) -> None:
        cases: List[Tuple[Any, str]] = [
            (lambda: larder.Response(5), "a body has to be a str or bytes, not int 5"),  # type: ignore[arg-type]
            (lambda: larder.Response(None), "not None"),  # type: ignore[arg-type]
            (lambda: larder.Response("x", 199), "not from 200 to 599"),
            (lambda: larder.Response("x", 600), "not from 200 to 599"),
            (lambda: larder.Response("x", "200"), "a status has to be an int"),  # type: ignore[arg-type]
            (lambda: larder.Response("x", True), "a status has to be an int"),
            (lambda: larder.Response(b"x" * (BODY_BYTES_MAX + 1)), "let an origin send it"),
            (lambda: larder.Response("\udcff"), "UTF-8 can't encode"),
            (lambda: larder.Response("x", headers={"a b": "c"}), "is no field name"),
            (lambda: larder.Response("x", headers={"a": "b\n"}), "has a CR, LF or NUL"),
            (lambda: larder.Response("x", headers={"a": "\u20ac"}), "outside latin-1"),
            (lambda: larder.Response("x", headers={"a": 5}), "write str"),  # type: ignore[arg-type]
            (lambda: larder.Response("x", headers=["ab"]), "a list of .name, value. pairs"),  # type: ignore[list-item]
            (lambda: larder.redirect("/a", 200), "wants a status of 301, 302, 303, 307, 308"),
            (lambda: larder.redirect(""), "empty"),
            (lambda: larder.redirect("/a\r\nb: c"), "CR, LF or NUL"),
            (lambda: larder.redirect(None), "as a str, not None"),  # type: ignore[arg-type]
            (lambda: larder.deny(403), "wants a text"),  # type: ignore[arg-type]
            (lambda: larder.deny("x", 200), "from 400 to 599"),
        ]
        for make, message in cases:
            with self.subTest(message), self.assertRaisesRegex((TypeError, ValueError), message):
                make()
            reply, _ = play("request", lambda req, make=make: make())
            self.assertEqual(reply.kind, 4)
            self.assertIn(__file__, reply.said["traceback"])

    def test_a_decision_longer_than_a_frame(self) -> None:
        def hook(req: larder.Request) -> None:
            for number in range(20):
                req.headers[f"x-{number}"] = "v" * (PAYLOAD_BYTES_MAX // 20)

        reply, reports = play("request", hook)
        self.assertEqual((reply.kind, len(reports)), (4, 1))
        self.assertIn("at most 1048576 can be sent: shorten body or fields", reply.said["traceback"])

    def test_the_longest_body_fits(self) -> None:
        reply, reports = play("page", lambda req: b"x" * BODY_BYTES_MAX)
        self.assertEqual((reply.kind, reports), (3, []))

    def test_exceptions_of_any_kind(self) -> None:
        class Odd(BaseException):
            def __str__(self) -> str:
                raise RuntimeError

        def recursion(req: larder.Request) -> Any:
            return recursion(req)

        def leave(req: larder.Request) -> None:
            raise SystemExit(5)

        def odd(req: larder.Request) -> None:
            raise Odd

        def long(req: larder.Request) -> None:
            raise ValueError("\u20ac" * 100_000)

        def surrogate(req: larder.Request) -> None:
            raise ValueError("\udcff")

        class Repr:
            def __repr__(self) -> str:
                raise KeyError("repr")

        hooks = (recursion, leave, odd, long, lambda req: Repr(), lambda req: 1 / 0)
        for function in hooks:
            with self.subTest(function.__name__):
                reply, _ = play("request", function)
                self.assertEqual((reply.kind, reply.said["hook"]), (4, 0))
                self.assertLess(len(reply.said["traceback"]), 20_000)
        traceback: str = play("request", surrogate)[0].said["traceback"]
        self.assertIn("ValueError: \\udcff", traceback)
        self.assertTrue(traceback.encode("utf-8"))

    def test_the_hook_that_failed_is_named(self) -> None:
        reply, _ = play("request", lambda req: None, lambda req: 1 / 0)
        self.assertEqual(reply.said["hook"], 1)


class Async(unittest.TestCase):
    def test_async_hooks_run_to_their_end(self) -> None:
        async def first(req: larder.Request) -> None:
            await asyncio.sleep(0.001)
            req.key.add("first")

        async def second(req: larder.Request) -> larder.Outcome:
            found = await asyncio.gather(asyncio.sleep(0, "a"), asyncio.sleep(0, "b"))
            return larder.deny("".join(found))

        reply, reports = play("request", first, second)
        self.assertEqual((reply.said["key"], reply.said["respond"]["body"], reports), (["first"], "YWI=", []))

    def test_async_failures(self) -> None:
        async def fails(req: larder.Request) -> None:
            await asyncio.sleep(0)
            raise ValueError("late")

        async def returns(req: larder.Request) -> Any:
            return 5

        async def leaves(req: larder.Request) -> None:
            await asyncio.sleep(0)
            raise SystemExit(5)

        self.assertIn("SystemExit: 5", play("request", leaves)[0].said["traceback"])
        self.assertIn("in fails", play("request", fails)[0].said["traceback"])
        self.assertIn("not int 5", play("request", returns)[0].said["traceback"])

    def test_tasks_that_are_left_are_ended(self) -> None:
        ended = []

        async def background() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(True)

        async def hook(req: larder.Request) -> None:
            task = asyncio.ensure_future(background())
            await asyncio.sleep(0)
            self.assertFalse(task.done())

        self.assertEqual(play("request", hook)[0].kind, 2)
        self.assertEqual(ended, [True])


class Memory(HooksCase):
    def test_memory_limit(self) -> None:
        self.write("""
            import larder
            @larder.request
            def hog(req):
                return larder.Response(b"x" * (len(bytearray(1 << 30)) and 1))
            @larder.request
            def fine(req):
                pass
        """)
        worker = self.start(memory_bytes=200 << 20).ready()
        with worker.connect() as client:
            for _ in range(3):
                client.send(frame(1, call()) + frame(2, call(hooks=(1,))))
                self.assertIn("MemoryError", receive(client).said["traceback"])
                self.assertEqual(receive(client), Reply(2, 2, {}))
                self.assertIn("line 5, in hog", worker.error()["traceback"])

    def test_prints_go_to_the_log(self) -> None:
        worker = self.ready("import larder\n@larder.request\ndef hook(req):\n    print('seen', req.path)")
        with worker.connect() as client:
            client.send(frame(1, call()))
            self.assertEqual(receive(client), Reply(1, 2, {"read": ["path"]}))
        self.assertTrue(worker.wait_for_log("seen /"))
        self.assertTrue(worker.silent())


if __name__ == "__main__":
    unittest.main()
