"""What hooks see of requests and responses, and what Larder is told of their changes."""

import copy
import gc
import json
import pickle
import unittest
from typing import Any, Callable, Dict, List, Optional, Tuple

from hooks_double import call, frame

import larder
from larder import _definitions
from larder._calls import Calls, Frames, text_of_reply

Action = Callable[[larder.Request], Any]


def run(hook: Callable[..., Any], stage: str = "request", **facts: Any) -> Dict[str, Any]:
    """Run one hook, and return what its reply says. Its exceptions come through."""
    with _definitions.collected() as hooks:
        {"request": larder.request, "fetched": larder.fetched, "page": larder.page("/**")}[stage](hook)

    def report(name: str, method: str, target: str, error: BaseException) -> str:
        raise error

    data, is_sound = Frames(Calls(hooks, report)).feed(frame(1, call(stage, **facts)))
    assert is_sound
    said: Dict[str, Any] = json.loads(text_of_reply(data) or b"{}")
    for name in ("hook", "line", "origin_by", "path_by", "route_by"):
        said.pop(name, None)
    return said


class Queries(unittest.TestCase):
    def check(self, query: Optional[str], action: Action, expected: Any, returned: Any = None) -> None:
        """`expected` is the query that Larder is told of, or `...` where it is told of none."""
        with self.subTest(query=query):
            found = []
            said = run(lambda req: found.append(action(req)), query=query)
            self.assertEqual(found, [returned])
            self.assertEqual(said.get("query", ...), expected)

    def test_reading(self) -> None:
        cases: List[Tuple[Optional[str], Action, Any]] = [
            ("a=1&b=2", lambda req: req.query.get("b"), "2"),
            ("a=1&b=2", lambda req: req.url.query["b"], "2"),
            ("a=1&a=2", lambda req: (req.query.get("a"), req.query.getall("a")), ("1", ["1", "2"])),
            ("a=1", lambda req: (req.query.get("b"), req.query.get("b", "x"), req.query.getall("b")), (None, "x", [])),
            ("a", lambda req: ("a" in req.query, req.query["a"], "b" in req.query), (True, "", False)),
            ("", lambda req: (req.query.items(), "" in req.query, len(req.query), str(req.query)), ([], False, 0, "")),
            (None, lambda req: (req.query.items(), "a" in req.query, bool(req.query), str(req.query)), ([], False, False, "")),
            ("&&a=1&", lambda req: req.query.items(), [("a", "1")]),
            ("=x", lambda req: req.query.items(), [("", "x")]),
            ("a=b=c", lambda req: req.query["a"], "b=c"),
            ("caf%C3%A9=%2B+%26", lambda req: req.query["café"], "+ &"),
            ("a=%zz%C3", lambda req: req.query["a"], "%zz\ufffd"),
            ("a+b=1", lambda req: list(req.query), ["a b"]),
            (
                "a=1&b=2&a=3",
                lambda req: (req.query.keys(), req.query.values(), len(req.query)),
                (["a", "b"], ["1", "2", "3"], 2),
            ),
            ("a=1&b=%32", lambda req: (str(req.query), repr(req.query)), ("a=1&b=%32", "Query('a=1&b=%32')")),
            ("A=1", lambda req: "a" in req.query, False),
        ]
        for query, action, returned in cases:
            self.check(query, action, ..., returned)
        with self.assertRaises(KeyError):
            run(lambda req: req.query["a"])

    def test_changes(self) -> None:
        def clear_and_add(req: larder.Request) -> None:
            req.query.clear()
            req.query.add("b", "2")

        def add_and_drop(req: larder.Request) -> None:
            req.query.add("b", "2")
            req.query.drop("b")

        cases: List[Tuple[Optional[str], Action, Any]] = [
            ("utm_source=x&a=1&utm_medium=y", lambda req: req.query.drop("utm_*"), "a=1"),
            ("b=%32&a=+&fbclid=1&c", lambda req: req.query.drop("utm_*", "fbclid"), "b=%32&a=+&c"),
            ("utm_a=1", lambda req: req.query.drop("utm_*"), None),
            ("%75tm_a=1&a", lambda req: req.query.drop("utm_*"), "a"),
            ("a=1", lambda req: req.query.drop("utm_*"), ...),
            ("a.b=1&axb=2", lambda req: req.query.drop("a.b"), "axb=2"),
            ("a=1&b=2", lambda req: req.query.drop("*"), None),
            ("&&a=1", lambda req: req.query.drop("a"), None),
            (None, lambda req: req.query.drop("a"), ...),
            ("", lambda req: req.query.drop("a"), ...),
            ("a=1&b=2&a=3&c=%43", lambda req: req.query.set("a", "9"), "a=9&b=2&c=%43"),
            ("a=1", lambda req: req.query.set("b", "é &+="), "a=1&b=%C3%A9+%26%2B%3D"),
            (None, lambda req: req.query.set("a", "1"), "a=1"),
            ("", lambda req: req.query.set("a", "1"), "a=1"),
            ("a=1", lambda req: req.query.set("a", "1"), ...),
            ("a=1", lambda req: req.query.add("a", "2"), "a=1&a=2"),
            ("a=1&b=2&a=3", lambda req: req.query.__delitem__("a"), "b=2"),
            ("b=2&a=%31&&b=1&a=0", lambda req: req.query.sort(), "a=%31&a=0&b=2&b=1"),
            ("a=1&b=2", lambda req: req.query.sort(), ...),
            ("a=1", lambda req: req.query.clear(), None),
            (None, lambda req: req.query.clear(), None),
            ("a=1", clear_and_add, "b=2"),
            ("a=1", add_and_drop, ...),
        ]
        for query, action, expected in cases:
            self.check(query, action, expected)

    def test_item_assignment(self) -> None:
        def hook(req: larder.Request) -> None:
            req.query["a"] = "1"
            del req.query["b"]
            self.assertEqual(str(req.url), "http://shop.example/?a=1")

        self.assertEqual(run(hook, query="b=2"), {"read": ["query", "scheme", "host", "port", "path"], "query": "a=1"})

    def test_wrong_arguments(self) -> None:
        cases: List[Tuple[Action, str]] = [
            (lambda req: req.query.set("a", 1), "has to be a str, not int 1"),  # type: ignore[arg-type]
            (lambda req: req.query.add("", "1"), "is empty"),
            (lambda req: req.query.add("a", "\udcff"), "UTF-8 can't encode"),
            (lambda req: req.query.drop(), "wants the names"),
            (lambda req: req.query.drop(["a"]), "has to be a str, not list"),  # type: ignore[arg-type]
            (lambda req: req.query.get(5), "has to be a str"),  # type: ignore[call-overload]
        ]
        for action, message in cases:
            with self.subTest(message), self.assertRaisesRegex((TypeError, ValueError), message):
                run(action, query="a=1")


FIELDS = (("accept", "a/b"), ("x-a", "1"), ("cookie", "a=1; b=2"), ("x-a", "2"), ("cookie", "c=3"))


class Fields(unittest.TestCase):
    def test_reading(self) -> None:
        cases: List[Tuple[Action, Any, List[str]]] = [
            (lambda req: req.headers.get("Accept"), "a/b", ["field:accept"]),
            (lambda req: req.headers["ACCEPT"], "a/b", ["field:accept"]),
            (lambda req: req.headers.get("x-b"), None, ["field:x-b"]),
            (lambda req: req.headers.get("x-b", "free"), "free", ["field:x-b"]),
            (lambda req: req.headers["x-a"], "1, 2", ["field:x-a"]),
            (lambda req: req.headers.getall("X-A"), ["1", "2"], ["field:x-a"]),
            (lambda req: req.headers.getall("x-b"), [], ["field:x-b"]),
            (lambda req: ("X-a" in req.headers, "x-b" in req.headers), (True, False), ["field:x-a", "field:x-b"]),
            (lambda req: req.headers["cookie"], "a=1; b=2; c=3", ["field:cookie"]),
            (lambda req: req.headers.items(), list(FIELDS), ["field:*"]),
            (lambda req: (list(req.headers), len(req.headers)), (["accept", "x-a", "cookie"], 3), ["field:*"]),
            (lambda req: req.headers.values(), [value for _, value in FIELDS], ["field:*"]),
            (lambda req: bool(req.headers), True, ["field:*"]),
            (lambda req: "accept" in repr(req.headers), True, ["field:*"]),
            (lambda req: req.headers == {}, False, []),
            (lambda req: req.headers == req.headers, True, ["field:*"]),
        ]
        for number, (action, returned, read) in enumerate(cases):
            with self.subTest(number=number):
                found: List[Any] = []
                said = run(lambda req, action=action, found=found: found.append(action(req)), fields=FIELDS)
                self.assertEqual((found, said.get("read", [])), ([returned], read))
        with self.assertRaises(KeyError):
            run(lambda req: req.headers["x-b"])

    def test_changes(self) -> None:
        def hook(req: larder.Request) -> None:
            headers = req.headers
            headers["X-B"] = "b"
            headers.set("X-C", "caf\xe9")
            headers.remove("x-absent")
            del headers["Accept"]
            self.assertEqual([headers.get("x-b"), "accept" in headers, headers.getall("x-c")], ["b", False, ["caf\xe9"]])
            headers["x-c"] = "c"

        said = {"set": [["x-b", "b"], ["x-c", "c"]], "remove": ["x-absent", "accept"]}
        self.assertEqual(run(hook, fields=FIELDS), said)

    def test_adding_reads_the_others(self) -> None:
        def hook(req: larder.Request) -> None:
            req.headers.add("X-A", "3")
            req.headers.add("x-b", "4")
            self.assertEqual(req.headers["x-a"], "1, 2, 3")

        expected = {"read": ["field:x-a", "field:x-b"], "set": [["x-a", "1"], ["x-a", "2"], ["x-a", "3"], ["x-b", "4"]]}
        self.assertEqual(run(hook, fields=FIELDS), expected)

    def test_items_after_changes(self) -> None:
        def hook(req: larder.Request) -> None:
            req.headers["x-a"] = "3"
            del req.headers["cookie"]
            self.assertEqual(req.headers.items(), [("accept", "a/b"), ("x-a", "3")])

        run(hook, fields=FIELDS)

    def test_cookies(self) -> None:
        def hook(req: larder.Request) -> None:
            self.assertEqual(dict(req.cookies), {"a": "1", "b": "2", "c": "3"})
            with self.assertRaises(TypeError):
                req.cookies["a"] = "2"  # type: ignore[index]
            req.headers["cookie"] = 'a="x y";b = c=d ;; =e; f; b=c=d'
            self.assertEqual(dict(req.cookies), {"a": '"x y"', "b": "c=d", "": "e"})

        self.assertEqual(run(hook, fields=FIELDS)["read"], ["field:cookie"])
        self.assertEqual(run(lambda req: (req.cookies, None)[1]), {"read": ["field:cookie"]})

    def test_a_cookie_with_two_values_is_decided_by_no_hook(self) -> None:
        fields = (("cookie", "s=anna; t=1; u=x"), ("cookie", "s=ben; t=1"))

        def lenient(req: larder.Request) -> Any:
            try:
                req.key.add(req.cookies["s"])
            except Exception:
                return larder.deny()

        looks: List[Action] = [
            lambda req: req.cookies.get("s"),
            lambda req: req.cookies.get("s", "x"),
            lambda req: dict(req.cookies),
            lambda req: req.cookies.items(),
            lambda req: req.cookies.values(),
            lenient,
        ]
        for number, action in enumerate(looks):
            with self.subTest(number=number):
                said = run(action, fields=fields)
                self.assertEqual(said, {"ambiguous": "s"})

        def harmless(req: larder.Request) -> None:
            cookies = req.cookies
            self.assertEqual((cookies["t"], cookies.get("u"), cookies.get("v"), "s" in cookies), ("1", "x", None, True))
            self.assertEqual((cookies.getall("s"), cookies.getall("t"), cookies.getall("v")), (["anna", "ben"], ["1"], []))
            self.assertEqual((list(cookies), len(cookies), bool(cookies)), (["s", "t", "u"], 3, True))

        self.assertEqual(run(harmless, fields=fields), {"read": ["field:cookie"]})

    def test_wrong_arguments(self) -> None:
        cases: List[Tuple[Action, str]] = [
            (lambda req: req.headers.set("x-a", "a\r\nb"), "has a CR, LF or NUL"),
            (lambda req: req.headers.set("x-a", "a\0"), "has a CR, LF or NUL"),
            (lambda req: req.headers.set("x a", "b"), "'x a' is no field name"),
            (lambda req: req.headers.set("", "b"), "'' is no field name"),
            (lambda req: req.headers.set("x-é", "b"), "is no field name"),
            (lambda req: req.headers.set("x-a", "€"), "outside latin-1"),
            (lambda req: req.headers.set("x-a", 5), r"has to be a str, not int 5: write str"),  # type: ignore[arg-type]
            (lambda req: req.headers.set("x-a", None), "has to be a str, not None"),  # type: ignore[arg-type]
            (lambda req: req.headers.add(b"x-a", "b"), "has to be a str, not bytes"),  # type: ignore[arg-type]
            (lambda req: req.headers.get(5), "has to be a str, not int 5"),  # type: ignore[call-overload]
            (lambda req: req.headers.get("\u212aey"), "outside ASCII"),
            (lambda req: req.headers.remove("a:b"), "is no field name"),
        ]
        for action, message in cases:
            with self.subTest(message), self.assertRaisesRegex((TypeError, ValueError), message):
                run(action)

    def test_names_are_forgotten_when_there_are_many(self) -> None:
        def hook(req: larder.Request) -> None:
            for number in range(5000):
                req.headers.get(f"x-{number}")

        self.assertEqual(len(run(hook)["read"]), 5000)


class Requests(unittest.TestCase):
    def test_facts(self) -> None:
        for name, value in {
            "method": "PUT", "scheme": "https", "host": "a.example", "port": 8443, "path": "/%C3%A9", "client": "::1", "name": "R2",
        }.items():  # fmt: skip
            with self.subTest(name):
                found: List[Any] = []
                facts: Dict[str, Any] = {name: value}
                said = run(lambda req, name=name, found=found: found.append(getattr(req, name)), **facts)
                self.assertEqual((found, said), ([value], {"read": [name]}))

    def test_url(self) -> None:
        for facts, url in (
            ({"query": "a=%31"}, "http://shop.example/?a=%31"),
            ({"query": ""}, "http://shop.example/?"),
            ({"port": 81}, "http://shop.example:81/"),
            ({"scheme": "https", "port": 443}, "https://shop.example/"),
            ({"scheme": "https", "host": "[::1]", "port": 80}, "https://[::1]:80/"),
        ):
            found = []
            said = run(lambda req: found.append(str(req.url)), **facts)  # noqa: B023
            self.assertEqual((found, said), ([url], {"read": ["scheme", "host", "port", "query", "path"]}))

    def test_changes(self) -> None:
        def hook(req: larder.Request) -> None:
            req.path = "/a%20b"
            req.query.clear()
            req.key.add("free")
            req.key.add("é")
            req.route = "backend-b"
            self.assertEqual((req.path, req.url.path, req.query.items(), req.route), ("/a%20b", "/a%20b", [], "backend-b"))
            req.url.path = "/c"

        expected = {"path": "/c", "query": None, "key": ["free", "é"], "route": "backend-b"}
        self.assertEqual(run(hook, query="a=1"), expected)
        # A page may do what a request hook may.
        self.assertEqual(run(hook, "page", query="a=1"), expected)

    def test_another_origin(self) -> None:
        def assign(name: str, value: Any) -> Action:
            return lambda req: setattr(req, name, value)

        cases: List[Tuple[Dict[str, Any], Action, Dict[str, Any]]] = [
            ({}, assign("host", "Mirror.example"), {"host": "mirror.example"}),
            ({}, assign("port", 8080), {"port": 8080}),
            # The usual port goes with the scheme, another one stays.
            ({}, assign("scheme", "https"), {"scheme": "https", "port": 443, "read": ["port", "scheme"]}),
            ({"port": 81}, assign("scheme", "https"), {"scheme": "https", "read": ["port", "scheme"]}),
            (
                {"query": "a=1"},
                assign("url", "https://Mirror.example/b?c=2"),
                {"scheme": "https", "host": "mirror.example", "port": 443, "path": "/b", "query": "c=2"},
            ),
            ({}, assign("url", "http://[::1]:81"), {"scheme": "http", "host": "[::1]", "port": 81, "path": "/", "query": None}),
            # The request for a site may have another URL of the same origin.
            ({"query": "a=1"}, assign("url", "http://shop.example/c"), {"path": "/c", "query": None}),
        ]
        for facts, action, expected in cases:
            with self.subTest(expected):
                said = run(action, **facts)
                reads = said.pop("read", [])
                self.assertEqual(said, {name: value for name, value in expected.items() if name != "read"})
                if "read" in expected:
                    self.assertEqual(reads, expected["read"])

        def hook(req: larder.Request) -> None:
            req.url.host = "b.example"
            req.url.port = 8443
            req.url.scheme = "https"
            self.assertEqual((req.host, req.port, req.scheme), ("b.example", 8443, "https"))
            self.assertEqual(str(req.url), "https://b.example:8443/")

        # What was set is not read.
        expected = {"host": "b.example", "port": 8443, "scheme": "https", "read": ["scheme", "query", "path"]}
        self.assertEqual(run(hook), expected)

    def test_what_was_set_is_not_read(self) -> None:
        def hook(req: larder.Request) -> None:
            req.path = "/a"
            req.headers["x-a"] = "1"
            assert req.path and req.headers["x-a"] and req.headers.getall("x-a") and "x-a" in req.headers

        self.assertEqual(run(hook), {"path": "/a", "set": [["x-a", "1"]]})

    def test_wrong_values(self) -> None:
        def assign(name: str, value: Any) -> Action:
            return lambda req: setattr(req, name, value)

        cases: List[Tuple[Action, str]] = [
            (assign("path", "a"), "has to begin with '/'"),
            (assign("path", "/a b"), "visible ASCII"),
            (assign("path", "/é"), "urllib.parse.quote"),
            (assign("path", "/a?b"), "parameters are in req.query"),
            (assign("path", "/a#b"), "write %3F or %23"),
            (assign("path", "/a\n"), "visible ASCII"),
            (assign("path", None), "has to be a str, not None"),
            (assign("route", ""), "may not be empty"),
            (assign("route", 5), "has to be a str"),
            (assign("rout", "b"), "rout"),
            (assign("host", "a.example:80"), "without scheme and port"),
            (assign("host", "http://a.example"), "without scheme and port"),
            (assign("host", "ä.example"), "names of other alphabets"),
            (assign("host", None), "has to be a str"),
            (assign("port", "80"), "a port has to be an int"),
            (assign("port", 0), "one is from 1 to 65535"),
            (assign("scheme", "ftp"), "there are 'http' and 'https'"),
            (assign("url", "/a"), "is no URL: write it as https"),
            (assign("url", "http://user@a.example/"), "is no URL"),
            (assign("url", "http://a.example/#b"), "is no URL"),
            (assign("url", "http://a.example/a b"), "visible ASCII"),
            (assign("url", "http://a.example/?a b"), "visible ASCII"),
            (assign("url", "http://a.example:65536/"), "one is from 1 to 65535"),
            (assign("method", "PUT"), ""),
            (lambda req: req.key.add(5), "a part of the key has to be a str, not int 5"),  # type: ignore[arg-type]
            (lambda req: req.key.add("\ud800"), "UTF-8 can't encode"),
        ]
        for action, message in cases:
            with self.subTest(message), self.assertRaisesRegex((TypeError, ValueError, AttributeError), message):
                run(action)

    def test_copies_would_hide_reads(self) -> None:
        for action in (copy.copy, copy.deepcopy, pickle.dumps):
            for part in ("headers", "query", "url", "key"):
                with self.subTest(part=part), self.assertRaisesRegex(TypeError, "can't be copied or pickled"):
                    run(lambda req, action=action, part=part: action(getattr(req, part)))
            with self.assertRaisesRegex(TypeError, "can't be copied or pickled"):
                run(action)

    def test_a_refused_change_is_none(self) -> None:
        def refused(req: Any) -> None:
            with self.assertRaises(TypeError):
                req.key.add(5)

        def refused_and_made(req: Any) -> None:
            refused(req)
            req.key.add("a")

        self.assertEqual(run(refused), {})
        self.assertEqual(run(refused_and_made)["key"], ["a"])

    def test_calls_leave_nothing_to_the_garbage_collector(self) -> None:
        def everything(req: larder.Request, resp: larder.FetchedResponse) -> None:
            assert req.headers.get("x-a") is None and str(req.url) and not req.query.get("a") and req.key
            resp.tags.add("a")
            resp.headers["x-a"] = "b"

        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        run(everything, "fetched", status=200)
        self.assertEqual([left for left in gc.get_objects() if type(left) in (larder.Request, larder.FetchedResponse)], [])

    def test_repr_reads(self) -> None:
        found = []
        said = run(lambda req: found.append(repr(req)), query="a")
        self.assertEqual(found, ["<larder.Request GET http://shop.example/?a>"])
        self.assertEqual(said["read"], ["method", "scheme", "host", "port", "query", "path"])


class Responses(unittest.TestCase):
    FIELDS = (("server", "x"), ("set-cookie", "a=1"), ("set-cookie", "b=2"))

    def test_reading(self) -> None:
        def hook(req: larder.Request, resp: larder.FetchedResponse) -> None:
            self.assertEqual(resp.status, 404)
            self.assertEqual(resp.headers["Server"], "x")
            self.assertEqual((resp.headers["set-cookie"], resp.headers.getall("set-cookie")), ("a=1", ["a=1", "b=2"]))
            self.assertEqual((resp.ttl, resp.grace, "vary" in resp.headers, req.method), (None, None, False, "GET"))
            list(resp.headers)

        said = run(hook, "fetched", status=404, response_fields=self.FIELDS)
        read = ["status", "response:server", "response:set-cookie", "response:vary", "method", "response:*"]
        self.assertEqual(said, {"read": read})

    def test_changes(self) -> None:
        def hook(req: larder.Request, resp: larder.FetchedResponse) -> None:
            resp.ttl, resp.grace = 1.5, "5m"
            self.assertEqual((resp.ttl, resp.grace), (1.5, 300))
            resp.tags.add("api", "user-5")
            resp.tags.add("api")
            resp.headers["x-a"] = "b"
            del resp.headers["server"]

        expected = {
            "ttl_ms": 1500, "grace_ms": 300000, "tags": ["api", "user-5"], "response_set": [["x-a", "b"]], "response_remove": ["server"],
        }  # fmt: skip
        self.assertEqual(run(hook, "fetched", status=200, response_fields=self.FIELDS), expected)

    def test_durations(self) -> None:
        for value, milliseconds in {
            0: 0, 30: 30000, 0.0015: 2, "30s": 30000, "5m": 300000, "2h": 7200000, "1d": 86400000, "10ms": 10, "1.5h": 5400000,
            " 1 s": 1000,
        }.items():  # fmt: skip
            with self.subTest(value=value):
                said = run(lambda req, resp, value=value: setattr(resp, "ttl", value), "fetched")
                self.assertEqual(said, {"ttl_ms": milliseconds})
        for wrong in (
            -1,
            "5",
            "5 minutes",
            "-5s",
            "",
            None,
            True,
            float("nan"),
            float("inf"),
            1e30,
            10**400,
            "99999d",
            [5],
            "٣s",
        ):
            with self.subTest(value=wrong), self.assertRaisesRegex((TypeError, ValueError), "grace"):
                run(lambda req, resp, value=wrong: setattr(resp, "grace", value), "fetched")

    def test_tags(self) -> None:
        for wrong in ("", "a b", "a,b", "é", "a\n", 5, None):
            with self.subTest(tag=wrong), self.assertRaisesRegex((TypeError, ValueError), "tag"):
                run(lambda req, resp, tag=wrong: resp.tags.add(tag), "fetched")

    def test_the_request_was_sent(self) -> None:
        for action in (
            lambda req: setattr(req, "path", "/a"), lambda req: setattr(req, "route", "a"), lambda req: req.key.add("a"),
            lambda req: req.query.drop("a"), lambda req: req.headers.set("x-a", "b"), lambda req: setattr(req.url, "path", "/a"),
        ):  # fmt: skip
            with self.assertRaisesRegex(AttributeError, "was sent before"):
                run(lambda req, resp, action=action: action(req), "fetched", query="a=1")


if __name__ == "__main__":
    unittest.main()
