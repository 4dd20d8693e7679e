"""`larder.testing`: hooks without a network and without Larder."""

import os
import sys
import unittest
from typing import Any, List

from hooks_double import HooksCase

import larder
import larder.testing
from larder.testing import Decision, HookFailed


@larder.request(host="shop.example", path="/cart/**", remember="60s")
def cart(req: larder.Request) -> Any:
    if "session" not in req.cookies:
        return larder.redirect("/login", 303)
    req.url.query.drop("utm_*")
    req.key.add(req.headers.get("x-plan", "free"))
    req.route = "backend-b"
    req.headers["x-a"] = "b"
    del req.headers["x-b"]
    return None


@larder.fetched(status=[200, 404], path="/api/*")
def api(req: larder.Request, resp: larder.FetchedResponse) -> None:
    resp.ttl, resp.grace = 1.5, "5m"
    resp.tags.add("api")
    resp.headers["x-type"] = resp.headers.get("content-type", "none")
    del resp.headers["server"]


@larder.page("/hello", method="GET")
async def hello(req: larder.Request) -> str:
    return "Hello, World!"


@larder.request
def fails(req: larder.Request) -> None:
    raise ValueError("broken")


@larder.request
def facts(req: larder.Request) -> None:
    told = (req.method, req.scheme, req.host, req.port, req.path, str(req.query), req.client, req.name, req.headers.items())
    req.key.add(repr(told))


class Functions(unittest.TestCase):
    def test_a_decision(self) -> None:
        decision = larder.testing.call(cart, "GET http://shop.example/cart/1?utm_source=x")
        response = decision.response
        assert response is not None
        self.assertEqual((response.status, response.headers, response.body), (303, [("location", "/login")], b""))
        self.assertEqual((decision.ran, decision.hook, decision.read), (["cart"], "cart", ["field:cookie"]))
        self.assertEqual(decision.line, cart.__code__.co_firstlineno + 3)
        self.assertEqual((decision.path, decision.query, decision.passed), ("/cart/1", "utm_source=x", False))

    def test_changes(self) -> None:
        url = "http://SHOP.example/cart/1?utm_source=x&a=%31"
        decision = larder.testing.call(cart, url, headers={"Cookie": "session=1", "X-Plan": "gold"})
        self.assertEqual((decision.response, decision.key, decision.route), (None, ["gold"], "backend-b"))
        self.assertEqual((decision.path, decision.query), ("/cart/1", "a=%31"))
        self.assertEqual((decision.set, decision.removed), ([("x-a", "b")], ["x-b"]))
        self.assertEqual(decision.read, ["field:cookie", "query", "field:x-plan"])
        self.assertIn("Decision of cart: {", repr(decision))

    def test_filters_hold(self) -> None:
        for request in ("http://other.example/cart/1", "http://shop.example/", "/cart/1"):
            decision = larder.testing.call(cart, request)
            self.assertEqual((decision.ran, decision.hook, decision.changes, decision.read), ([], None, {}, []))
        self.assertEqual(larder.testing.call(hello, "POST /hello").ran, [])
        self.assertEqual(larder.testing.call(api, "/api/x", status=500).ran, [])
        self.assertEqual(larder.testing.call(api, "/api/x/y").ran, [])

    def test_fetched(self) -> None:
        decision = larder.testing.call(api, "/api/x", status=404, response_headers={"Content-Type": "text/html"})
        self.assertEqual((decision.ttl, decision.grace, decision.tags), (1.5, 300, ["api"]))
        self.assertEqual((decision.response_set, decision.response_removed), ([("x-type", "text/html")], ["server"]))
        self.assertEqual(larder.testing.call(api, "/api/x").ran, ["api"])

    def test_pages(self) -> None:
        response = larder.testing.call(hello, "/hello").response
        assert response is not None
        self.assertEqual((response.body, response.headers), (b"Hello, World!", [("content-type", "text/plain; charset=utf-8")]))

    def test_facts(self) -> None:
        def told(*arguments: Any, **named: Any) -> Any:
            return eval(larder.testing.call(facts, *arguments, **named).key[0])

        host = [("host", "example.org")]
        self.assertEqual(told(), ("GET", "http", "example.org", 80, "/", "", "192.0.2.1", "test", host))
        found = told("PUT https://[::1]:8443/a?b", headers=[("A", "1"), ("a", "2")], client="::2", name="R1")
        fields = [("host", "[::1]:8443"), ("a", "1"), ("a", "2")]
        self.assertEqual(found, ("PUT", "https", "[::1]", 8443, "/a", "b", "::2", "R1", fields))
        self.assertEqual(told("https://a.example")[2:5], ("a.example", 443, "/"))
        self.assertEqual(told(headers={"host": "b.example"})[8], [("host", "b.example")])

    def test_lists_of_functions(self) -> None:
        decision = larder.testing.call([facts, cart], "http://shop.example/cart/1")
        self.assertEqual((decision.ran, decision.hook, len(decision.key)), (["facts", "cart"], "cart", 1))

    def test_failures(self) -> None:
        with self.assertRaisesRegex(HookFailed, "in fails\n(.|\n)*ValueError: broken") as caught:
            larder.testing.call(fails)
        self.assertIsInstance(caught.exception.__cause__, ValueError)

    def test_wrong_arguments(self) -> None:
        untyped: Any = larder.testing
        for arguments, named, message in (
            ((cart, "GET"), {}, "is no request: write 'GET http"),
            ((cart, "GET /a b"), {}, "is no request"),
            ((cart, "/é"), {}, "is no request"),
            ((cart, "/a#b"), {}, "is no request"),
            ((cart, ""), {}, "is no request"),
            ((cart, "/"), {"status": 200}, "runs before there is a response"),
            ((cart, "/"), {"stage": "deliver"}, "'deliver' is no stage"),
            ((cart, "/"), {"headers": {"a b": "c"}}, "is no field name"),
            ((api, "/"), {"status": 99}, "not from 200 to 599"),
            ((print, "/"), {}, "is no hook: put @larder.request"),
        ):
            with self.subTest(message), self.assertRaisesRegex((TypeError, ValueError), message):
                untyped.call(*arguments, **named)


@larder.request
def forwarded(req: larder.Request) -> Any:
    if req.host == "bad.example":
        return larder.deny("not here")
    if req.method != "CONNECT":
        req.url = f"https://mirror.example:8443/{req.host}{req.path}"
    return None


@larder.request(path="/**")
def with_a_path(req: larder.Request) -> None:
    req.key.add("seen")


class Forward(unittest.TestCase):
    def test_another_url(self) -> None:
        decision = larder.testing.call(forwarded, "GET http://a.example/b?c=1")
        self.assertEqual((decision.url, decision.host), ("https://mirror.example:8443/a.example/b", "mirror.example"))
        self.assertEqual((decision.scheme, decision.port, decision.query), ("https", 8443, None))
        self.assertEqual(larder.testing.call(with_a_path, "GET https://a.example/b?c=1").url, "https://a.example/b?c=1")

    def test_connect(self) -> None:
        decision = larder.testing.call([forwarded, with_a_path], "CONNECT bad.example:443")
        assert decision.response is not None
        self.assertEqual((decision.ran, decision.response.status), (["forwarded"], 403))
        decision = larder.testing.call(forwarded, "CONNECT a.example:443")
        self.assertEqual((decision.response, decision.changes, decision.port), (None, {}, 443))
        self.assertEqual(larder.testing.call(with_a_path, "CONNECT [::1]:8443").ran, [], "a tunnel has no path")
        with self.assertRaisesRegex(ValueError, "is no request"):
            larder.testing.call(forwarded, "CONNECT a.example")


class Files(HooksCase):
    TEXT = """
        import larder, plans
        @larder.request(path="/cart")
        def cart(req):
            req.key.add(plans.PLAN)
        @larder.fetched(status=200)
        def keep(req, resp):
            resp.ttl = 30
        @larder.page("/cart")
        def page(req):
            return "<p>"
        @larder.request
        def every(req):
            req.route = "b"
    """

    def setUp(self) -> None:
        super().setUp()
        self.path = self.write(self.TEXT)
        self.write("PLAN = 'gold'", "plans.py")
        self.addCleanup(sys.modules.pop, "plans", None)

    def ran(self, *arguments: Any, **named: Any) -> List[str]:
        return larder.testing.call(self.path, *arguments, **named).ran

    def test_stages(self) -> None:
        before = list(sys.path)
        self.assertEqual(larder.testing.call(self.path, "/cart").key, ["gold"])
        self.assertEqual(self.ran("/cart"), ["cart", "page", "every"])
        self.assertEqual(self.ran("/"), ["every"])
        self.assertEqual(self.ran("/", status=200), ["keep"])
        self.assertEqual(self.ran("/", status=404), [])
        self.assertEqual(self.ran("/cart", stage="page"), ["page"])
        self.assertEqual(sys.path, before)

    def test_functions_are_still_known(self) -> None:
        self.ran("/")
        self.assertEqual(larder.testing.call(hello, "/hello").ran, ["hello"])

    def test_paths_of_other_types(self) -> None:
        import pathlib

        decision: Decision = larder.testing.call(pathlib.Path(self.path), "/")
        self.assertEqual(decision.route, "b")

    def test_files_that_fail(self) -> None:
        with self.assertRaisesRegex(ImportError, "there is no file"):
            larder.testing.call(os.path.join(self.folder, "absent.py"))
        path = self.write("1 / 0", "broken.py")
        with self.assertRaisesRegex(ImportError, "importing broken.py failed") as caught:
            larder.testing.call(path)
        self.assertIsInstance(caught.exception.__cause__, ZeroDivisionError)


if __name__ == "__main__":
    unittest.main()
