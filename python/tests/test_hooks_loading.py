"""Files of hooks: definitions, filters, and what stands in the way of loading."""

import base64
import json
import os
import sys
import unittest
from typing import Any, Callable, Dict, List, Tuple

from hooks_double import HooksCase, call, frame, receive
from larder_double import Worker

import larder
from larder import _definitions
from larder._definitions import path_matches


class Definitions(unittest.TestCase):
    def described(self, decorator: Callable[[Any], Any], function: Any = lambda req, resp=None: None) -> Dict[str, Any]:
        with _definitions.collected() as hooks:
            self.assertIs(decorator(function), function)
        return hooks[0].describe()

    def test_filters(self) -> None:
        cases: List[Tuple[Any, Dict[str, Any]]] = [
            (larder.request, {"stage": "request", "hosts": [], "paths": [], "methods": [], "fields": [], "remember_ms": None}),
            (larder.request(), {"stage": "request", "hosts": []}),
            (larder.request(host="Shop.Example.", path="/cart/*"), {"hosts": ["shop.example"], "paths": ["/cart/*"]}),
            (larder.request(host=["*.example", "[::1]", "*"]), {"hosts": ["*.example", "[::1]", "*"]}),
            (larder.request(path=("/a", "/**/b{hex}")), {"paths": ["/a", "/**/b{hex}"]}),
            (
                larder.request(method=["get", "PROPFIND"], field="X-Plan"),
                {"methods": ["GET", "PROPFIND"], "fields": ["x-plan"]},
            ),
            (larder.request(remember="60s"), {"remember_ms": 60000}),
            (larder.request(remember=1.5), {"remember_ms": 1500}),
            (larder.page("/hello", method="GET"), {"stage": "page", "paths": ["/hello"], "methods": ["GET"]}),
            (larder.page(["/a", "/b"]), {"paths": ["/a", "/b"]}),
            (larder.page(path="/a"), {"paths": ["/a"]}),
            (larder.fetched, {"stage": "fetched", "statuses": []}),
            (larder.fetched(status=200, path="/api/*"), {"statuses": [200], "paths": ["/api/*"]}),
            (larder.fetched(status=["200", 404]), {"statuses": [200, 404]}),
            (larder.found, {"stage": "found", "statuses": []}),
            (larder.found(status=200, field="x-fresh", remember=5), {"statuses": [200], "fields": ["x-fresh"]}),
            (larder.respond(host="*.example"), {"stage": "respond", "hosts": ["*.example"]}),
        ]
        for decorator, expected in cases:
            with self.subTest(expected=expected):
                found = self.described(decorator)
                self.assertEqual({name: found[name] for name in expected}, expected)

    def test_functions_of_other_kinds(self) -> None:
        class Policy:
            def __call__(self, req: larder.Request) -> None: ...

            def method(self, req: larder.Request) -> None: ...

        def wrapped(req: larder.Request) -> None: ...

        def wrapper(*arguments: Any) -> None: ...

        wrapper.__wrapped__ = wrapped  # type: ignore[attr-defined]
        self.assertEqual(self.described(larder.request, Policy())["name"], "Policy")
        self.assertEqual(self.described(larder.request, Policy().method)["name"], "method")
        found = self.described(larder.request, wrapper)
        self.assertEqual((found["name"], found["line"]), ("wrapped", wrapped.__code__.co_firstlineno))
        self.assertEqual(found["file"], __file__)

    def test_a_function_may_be_several_hooks(self) -> None:
        with _definitions.collected() as hooks:

            @larder.page("/a")
            @larder.request
            def both(req: larder.Request) -> None: ...

        self.assertEqual([hook.stage for hook in hooks], ["request", "page"])

    def test_mistakes(self) -> None:
        untyped: Any = larder

        def yields(req: larder.Request) -> Any:
            yield 5

        async def yields_too(req: larder.Request) -> Any:
            yield 5

        cases: List[Tuple[Callable[[], Any], str]] = [
            (lambda: untyped.request("/cart"), r"filters have names: write @larder.request\(path='/cart'\)"),
            (lambda: untyped.request(pth="/a"), "has no filter 'pth': there is path"),
            (lambda: untyped.request(whatever=1), "there is host, path, method, status, field, remember"),
            (lambda: untyped.request(status=200), "status= is for @larder.fetched"),
            (lambda: untyped.page(lambda req: ""), r"needs a path: write @larder.page\('/hello'\)"),
            (lambda: untyped.page(), "needs a path"),
            (lambda: untyped.page("/a", status=200), "status= is for @larder.fetched"),
            (lambda: larder.page("hello"), "has to begin with '/'"),
            (lambda: larder.request(path="/a?b"), "have no query"),
            (lambda: larder.request(path="/é"), "visible ASCII"),
            (lambda: larder.request(path="/a**"), "a segment '\\*\\*' is any number of segments"),
            (lambda: larder.request(path="/{name}"), "is no pattern of a path"),
            (lambda: larder.request(path=[]), "path= is empty"),
            (lambda: untyped.request(path=5), "path= wants a str or a list of them, not int 5"),
            (lambda: untyped.request(path=["/a", 5]), "path= wants a str or a list of them"),
            (lambda: larder.request(host="http://a.example"), "is no host: write it as www.example.org"),
            (lambda: larder.request(host="a.example:80"), "without scheme and port"),
            (lambda: larder.request(host="a.*.example"), "is no host"),
            (lambda: larder.request(host="é.example"), "as xn--"),
            (lambda: larder.request(method="GET POST"), "method=: 'GET POST' is no"),
            (lambda: larder.request(field="x plan"), "field=: 'x plan' is no field name"),
            (lambda: larder.request(remember="soon"), "remember is 'soon': write seconds"),
            (lambda: larder.fetched(status=99), "status=: the status 99 is not from 200 to 599"),
            (lambda: larder.fetched(status="2xx"), "a status has to be an int, not str '2xx'"),
            (lambda: untyped.fetched(status=2.5), "wants a status or a list of statuses"),
            (lambda: larder.request(lambda: None), r"write def <lambda>\(req\)"),
            (lambda: larder.fetched(lambda req: None), r"write def <lambda>\(req, resp\)"),
            (lambda: larder.request(lambda req, resp: None), r"write def <lambda>\(req\)"),
            (lambda: larder.request()(None), "stands before a function, not before None"),  # type: ignore[type-var]
            (lambda: larder.request()(dict), "not before a class"),
            (lambda: larder.request(yields), "has a `yield`"),
            (lambda: larder.request(yields_too), "has a `yield`"),
        ]
        for define, message in cases:
            with self.subTest(message), _definitions.collected() as hooks:
                with self.assertRaisesRegex((TypeError, ValueError), message) as caught:
                    define()
                self.assertIn(f"{__file__}:{define.__code__.co_firstlineno}: ", str(caught.exception))
                self.assertEqual(hooks, [])

    def test_names(self) -> None:
        with self.assertRaisesRegex(AttributeError, "module 'larder' has no attribute 'x'"):
            larder.x  # type: ignore[attr-defined]  # noqa: B018
        for name in larder.__all__:
            self.assertTrue(hasattr(larder, name))

    def test_path_patterns(self) -> None:
        # The table of the store rules.
        digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        blob = f"/v2/library/alpine/blobs/sha256:{digest}"
        for pattern, path, matches in (
            ("/simple/*/", "/simple/six/", True),
            ("/simple/*/", "/simple/six", False),
            ("/simple/*/", "/simple/six/x", False),
            ("/**/simple/*/", "/simple/six/", True),
            ("/**/simple/*/", "/user/index/simple/six/", True),
            ("/**", "/", True),
            ("/**", "/a/b", True),
            ("/a/**", "/a", True),
            ("/a/**", "/ab", False),
            ("/**/a/**/b", "/a/b", True),
            ("/**/a/**/b", "/x/a/y/z/b", True),
            ("/**/a/**/b", "/x/a/y/z/c", False),
            ("/**/v2/**/blobs/sha256:{hex}", blob, True),
            ("/**/v2/**/blobs/sha256:{hex}", f"{blob}x", False),
            ("/**/v2/**/blobs/sha256:{hex}", "/v2/library/alpine/blobs/sha256:9f86", False),
            ("/*-{digit}*.whl", "/six-1.16.0-py2.py3-none-any.whl", True),
            ("/*-{digit}*.whl", "/six-latest.whl", False),
            ("/a*b*c", "/abbbc", True),
            ("/a.c", "/abc", False),
            ("/", "/", True),
            ("/a", "*", False),
            ("/**", "/" + "a" * 2048, False),
        ):
            with self.subTest(pattern=pattern, path=path[:60]):
                self.assertEqual(path_matches(pattern, path), matches)


class Loading(HooksCase):
    def test_order_and_own_modules(self) -> None:
        self.write("import larder, shared\nnamed = __name__\n@larder.request\ndef one(req): req.key.add(shared.TEXT)")
        self.write("import larder, shared\n@larder.request\ndef two(req): req.key.add(shared.TEXT)", "site.py")
        self.write("TEXT = 'shared'", "shared.py")
        worker = self.start("hooks:site.py,policy.py")
        ready = worker.message()["ready"]
        self.assertEqual([hook["name"] for hook in ready["hooks"]], ["two", "one"])
        names = ["site.py", "policy.py", "shared.py"]
        self.assertEqual(ready["files"], [os.path.join(self.folder, name) for name in names])
        with worker.connect() as client:
            client.send(frame(1, call(hooks=(0, 1))))
            self.assertEqual(receive(client).said["key"], ["shared", "shared"])

    def test_a_file_elsewhere(self) -> None:
        self.write("import larder\n@larder.request\ndef one(req): pass")
        path = os.path.join(self.folder, "policy.py")
        os.mkdir(os.path.join(self.folder, "app"))
        self.folder = os.path.join(self.folder, "app")
        ready = self.start(f"hooks:{path}").message()["ready"]
        self.assertEqual((ready["files"], ready["hooks"][0]["file"]), ([path], path))

    def test_classes_of_a_file_know_their_module(self) -> None:
        self.ready("""
            from __future__ import annotations
            import dataclasses, larder, pickle
            @dataclasses.dataclass
            class Plan:
                name: str
            assert pickle.loads(pickle.dumps(Plan("a"))) == Plan("a")
            @larder.request
            def one(req): pass
        """)

    def test_a_changed_file_is_compiled_anew(self) -> None:
        for text in ("one", "two"):
            # The same size and, on coarse clocks, the same time.
            path = self.write(f"import larder\n@larder.request\ndef {text}(req): pass")
            os.utime(path, (1, 1))
            worker = self.start()
            self.assertEqual(worker.message()["ready"]["hooks"][0]["name"], text)

    def test_files_that_are_not_there(self) -> None:
        self.write("", "second.py")
        hint = self.hint(app="hooks:polcy.py")
        self.assertEqual(hint, f"there is no file {self.folder}/polcy.py; the folder has second.py")
        self.assertIn("its folder can't be read (No such file or directory)", self.hint(app="hooks:/absent/policy.py"))
        self.assertIn("there is no file", self.hint(app=f"hooks:{self.folder}"))
        self.assertIn("is named twice", self.hint(app="hooks:second.py,./second.py"))
        self.assertIn("'hooks:file.py,other.py'", self.hint(app="hooks:"))

    def test_imports_that_fail(self) -> None:
        self.assertIn("importing policy.py failed: see the last lines", self.hint("1 / 0"))
        self.assertIn(f'File "{self.folder}/policy.py", line 1', self.traceback)
        self.assertNotIn("_hooks.py", self.traceback)
        self.assertTrue(self.traceback.endswith("ZeroDivisionError: division by zero\n"))
        self.hint("def")
        self.assertIn("SyntaxError", self.traceback)
        self.hint("exit(5)")
        self.assertIn("SystemExit: 5", self.traceback)
        hint = self.hint("import surely_not_installed")
        self.assertIn("policy.py imports 'surely_not_installed', which is neither in its folder", hint)
        self.assertIn(sys.executable, hint)
        self.hint("import larder\n\n@larder.request(path='cart')\ndef cart(req): pass")
        self.assertIn(f"{self.folder}/policy.py:3: path=: 'cart' is no pattern of a path", self.traceback)

    def test_routes_that_are_named(self) -> None:
        self.write(
            """
            import larder

            @larder.request
            def ways(req):
                req.route = "b"
                other = req
                other.route = "not looked for"
                req.route = "c" if req.path == "/c" else "d"
                req.path = "/x"

            class Plan:
                route = "none"

            @larder.request
            async def more(request):
                request.route = request.route or "made"
                request.route = "b"
            """
        )
        loaded = self.start().message()["ready"]
        named = [(route["name"], route["line"], route["file"]) for route in loaded["routes"]]
        path = f"{self.folder}/policy.py"
        self.assertEqual(sorted(named), [("b", 6, path), ("b", 18, path), ("c", 9, path), ("d", 9, path)])


    def test_no_hooks(self) -> None:
        self.assertIn("policy.py defines no hook: put @larder.request", self.hint("import larder\ndef cart(req): pass"))

    def test_a_file_that_is_also_a_module(self) -> None:
        self.write("import larder\n@larder.request\ndef one(req): pass")
        self.write("import policy", "second.py")
        self.assertIn("policy.py was loaded twice, also by an import", self.hint(app="hooks:policy.py,second.py"))

    def test_as_many_hooks_as_there_may_be(self) -> None:
        text = "import larder\nfor number in range({}):\n    larder.request(path=f'/a/{{number}}')(lambda req: None)"
        self.write("", "shared.py")
        self.write(text.format(200) + "\nimport shared")
        for number in range(400):
            self.write("", f"a_file_with_a_rather_long_name_{number}.py")
        self.write(text.format(200) + "".join(f"\nimport a_file_with_a_rather_long_name_{number}" for number in range(400)))
        ready = self.start().message()["ready"]
        self.assertEqual(len(ready["hooks"]), 200)
        self.assertEqual(ready["files"][0], os.path.join(self.folder, "policy.py"))
        self.assertIn("there are 257 hooks, and at most 256 can be", self.hint(text.format(257)))
        long = "import larder\nlarder.request(path=['/' + 'a' * 60] * 1000)(lambda req: None)"
        self.assertIn("bytes, and at most 63487 can be: use patterns", self.hint(long))

    def test_256_hooks_fit(self) -> None:
        lines = "".join(f"@larder.request(path='/cart/{n}/*')\ndef a_hook_of_usual_name_{n}(req): pass\n" for n in range(256))
        ready = self.ready_message("import larder\n" + lines)
        self.assertEqual(len(ready["hooks"]), 256)

    def test_files_that_are_kept_count_and_not_what_became_of_them(self) -> None:
        files = {
            "policy.py": "import larder, words, parts.deep\n@larder.page('/a')\ndef a(req): return words.TEXT + parts.deep.TEXT\n",
            "words.py": "TEXT = 'good '\n",
            "parts/__init__.py": "",
            "parts/deep.py": "from . import near\nTEXT = near.TEXT\n",
            "parts/near.py": "TEXT = 'version'\n",
        }
        os.mkdir(os.path.join(self.folder, "parts"))
        kept = os.path.join(self.folder, "kept")
        os.mkdir(kept)
        paths = [self.write(text, name) for name, text in files.items()]
        for number, path in enumerate(paths):
            os.rename(path, os.path.join(kept, str(number)))
        with open(os.path.join(kept, "files.json"), "w", encoding="utf-8") as file:
            json.dump(paths, file)
        # Of these files one is broken, one is another one, and the others are gone.
        self.write("def broken(:", "policy.py")
        self.write("TEXT = 'bad '", "words.py")
        worker = self.start(kept=kept)
        ready = worker.message()["ready"]
        self.assertEqual((len(ready["hooks"]), sorted(ready["files"])), (1, sorted(paths)))
        with worker.connect() as client:
            client.send(frame(1, call("request", path="/a")))
            body = base64.b64decode(receive(client).said["respond"]["body"])
            self.assertEqual(body, b"good version")
        self.assertIn("can't be read", self.hint_of(self.start(kept=os.path.join(self.folder, "absent"))))

    def test_a_failure_names_the_files_that_were_read(self) -> None:
        imported = self.write("def broken(:\n", "words.py")
        self.write("TEXT = ''", "others.py")
        path = self.write("import larder, others, words\n")
        message = self.start().message()["failed"]
        self.assertEqual(set(message["files"]) - {path}, {imported, os.path.join(self.folder, "others.py")})

    def hint_of(self, worker: Worker) -> str:
        hint: str = worker.message()["failed"]["hint"]
        return hint

    def ready_message(self, text: str) -> Dict[str, Any]:
        self.write(text)
        message: Dict[str, Any] = self.start().message()["ready"]
        return message


class Failed(HooksCase):
    """The files by whose change a version may be loaded that could not be."""

    def files(self, app: str = "hooks:policy.py") -> List[str]:
        worker = self.start(app)
        files: List[str] = worker.message()["failed"]["files"]
        return sorted(os.path.relpath(path, os.path.realpath(self.folder)) for path in files)

    def test_those_whose_import_failed_and_those_that_are_missing(self) -> None:
        self.write("import json, words\n", "policy.py")
        missing = ["policy.py", "words.py", os.path.join("words", "__init__.py")]
        self.assertEqual(self.files(), sorted(missing))
        self.write("import deeper\n", "words.py")
        self.write("import json\njson.loads('{')\n", "deeper.py")
        self.assertEqual(self.files(), ["deeper.py", "policy.py", "words.py"])
        self.write("try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError from error\n", "deeper.py")
        self.assertEqual(self.files(), ["deeper.py", "policy.py", "words.py"])
        self.write("def (\n", "deeper.py")
        self.assertEqual(self.files(), ["deeper.py", "policy.py", "words.py"])
        self.assertEqual(self.files("hooks:none.py"), ["none.py"])

    def test_exceptions_that_are_equal_to_all_and_false(self) -> None:
        self.write("import strange\n", "policy.py")
        strange = """
class Strange(Exception):
    def __eq__(self, other): return True
    def __bool__(self): return False
    __hash__ = None
try:
    import words
except ImportError as error:
    cause = Strange()
    cause.__cause__ = error
    raise Strange from cause
"""
        self.write(strange, "strange.py")
        words = ["words.py", os.path.join("words", "__init__.py")]
        self.assertEqual(self.files(), sorted(["policy.py", "strange.py", *words]))
        # One that is its own cause, by way of another.
        self.write("one, other = ValueError(), KeyError()\none.__cause__, other.__cause__ = other, one\nraise one\n", "strange.py")
        self.assertEqual(self.files(), ["policy.py", "strange.py"])

    def test_those_of_an_application(self) -> None:
        self.write("import words\n", "app.py")
        self.write("raise ValueError\n", "words.py")
        for app in ("wsgi:app", "asgi:app"):
            self.assertEqual(set(self.files(app)), {"app.py", os.path.join("app", "__init__.py"), "words.py"})


if __name__ == "__main__":
    unittest.main()
