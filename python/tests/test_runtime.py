"""Start and end of a worker process: loading, hints, reports, descriptors."""

import json
import os
import signal
import sys
import tempfile
import textwrap
import time
import unittest
from typing import Any, Dict

from larder_double import ROOT, Worker

sys.path.insert(0, ROOT)

from larder import _runtime  # noqa: E402

HELLO = """
def application(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]
"""


ASGI_HELLO = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        import views
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"hello"})
"""


class Loading(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = os.path.join(self.folder.name, *name.split("__")) + ".py"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(textwrap.dedent(text))

    def load(self, app: str, **settings: Any) -> Worker:
        worker = Worker(app, self.folder.name, **settings)
        self.addCleanup(worker.release)
        return worker

    def answers(self, app: str) -> Dict[str, Any]:
        worker = self.load(app)
        message = worker.message()
        self.assertIn("ready", message)
        self.assertEqual(worker.ask("/").body, b"hello")
        self.assertEqual(worker.stop(), 0)
        found: Dict[str, Any] = message["ready"]
        return found

    def hint(self, app: str) -> str:
        worker = self.load(app)
        message = worker.message()["failed"]
        self.assertEqual(worker.process.wait(10), 3)
        self.traceback = message["traceback"]
        hint: str = message["hint"]
        return hint

    def test_ready(self) -> None:
        self.write(hello=HELLO, other="", pages__web="import other\nfrom hello import application")
        ready = self.answers("wsgi:pages.web:application")
        files = ready.pop("files")
        self.assertEqual(sorted(map(os.path.basename, files)), ["hello.py", "other.py", "web.py"])
        self.assertEqual(os.path.basename(files[0]), "web.py")
        self.assertGreater(ready.pop("pid"), 0)
        self.assertEqual(ready.pop("python"), sys.version.split()[0])
        self.assertIs(type(ready.pop("free_threaded")), bool)
        self.assertEqual(sorted(map(type, [*ready.pop("confined"), *ready.pop("lacks")]), key=str)[:1], [str])
        self.assertEqual(ready, {"implementation": "CPython", "interface": "wsgi", "threads": 1})

    def test_files_of_modules_that_a_request_imports(self) -> None:
        lazy = """
            import colorsys
            def application(environ, start_response):
                import views, wave
                start_response("200 OK", [])
                return [b"hello"]
        """
        for interface in ("wsgi", "asgi"):
            self.write(views="", lazy=lazy, slow=ASGI_HELLO)
            worker = self.load("wsgi:lazy" if interface == "wsgi" else "asgi:slow")
            self.assertIn("ready", worker.message())
            for _ in range(2):
                self.assertEqual(worker.ask("/").body, b"hello")
            self.assertEqual([os.path.basename(file) for file in worker.message()["files"]["files"]], ["views.py"])
            self.assertEqual(worker.stop(), 0)

    def test_tracebacks_show_the_lines_that_run(self) -> None:
        helper = '''
            def give():
                raise KeyError("old")  # the line that runs
        '''
        wsgi = '''
            import helper
            def application(environ, start_response):
                if environ["PATH_INFO"] == "/late":
                    import late
                    late.give()
                helper.give()
        '''
        asgi = '''
            import helper
            async def app(scope, receive, send):
                if scope["type"] == "http" and scope["path"] == "/late":
                    import late
                    late.give()
                if scope["type"] == "http":
                    helper.give()
        '''
        for app in ("wsgi:first", "asgi:second"):
            self.write(helper=helper, late=helper, first=wsgi, second=asgi)
            worker = self.load(app)
            self.assertIn("ready", worker.message())
            worker.ask("/late")
            self.assertIn("the line that runs", worker.error()["traceback"])
            self.assertIn("files", worker.message())
            self.write(helper="\n\n# the new file", late="\n\n# the new file")
            for path in ("/", "/late"):
                worker.ask(path)
                text = worker.error()["traceback"]
                self.assertIn("the line that runs", text, (app, path))
                self.assertNotIn("the new file", text)

    def test_names_of_applications(self) -> None:
        self.write(
            hello=HELLO
            + """
            class holder:
                class inner:
                    wsgi = application
            def create_app():
                return application
            """.replace("\n            ", "\n")
        )
        for app in ("wsgi:hello", "wsgi:hello:application", "wsgi:hello:holder.inner.wsgi", "wsgi:hello:create_app()"):
            self.answers(app)

    def test_the_folder_comes_before_installed_modules_but_not_before_the_runtime(self) -> None:
        self.write(hello=HELLO, larder="raise ValueError", colorsys="HERE = True")
        self.write(uses="import colorsys, larder\nassert colorsys.HERE\nfrom hello import application")
        self.answers("wsgi:uses")

    def test_missing_module(self) -> None:
        self.write(application=HELLO)
        hint = self.hint("wsgi:aplication")
        self.assertIn(f"no module 'aplication' in the folder {self.folder.name}", hint)
        self.assertIn("the folder has application", hint)
        self.assertIn("ModuleNotFoundError", self.traceback)

    def test_name_of_a_loaded_module(self) -> None:
        self.write(site__web=HELLO)
        self.assertIn("the name 'site' is taken by", self.hint("wsgi:site.web"))

    def test_missing_dependency(self) -> None:
        self.write(hello="import surely_not_installed")
        hint = self.hint("wsgi:hello")
        self.assertIn("imports 'surely_not_installed'", hint)
        self.assertIn("virtual environment", hint)
        self.assertIn("hello.py", self.traceback.split("\n")[-4] + self.traceback.split("\n")[-3])

    def test_missing_attribute(self) -> None:
        self.write(hello="applikation = print\napp = print")
        self.assertIn("hello has no attribute 'application'; it has applikation, app", self.hint("wsgi:hello"))
        self.assertIn("str object in holder has no attribute 'x'", self.hint_of("holder", "y = ''", "wsgi:holder:y.x"))

    def hint_of(self, name: str, text: str, app: str) -> str:
        self.write(**{name: text})
        return self.hint(app)

    def test_not_callable(self) -> None:
        self.assertIn("is a int, which can't be called", self.hint_of("number", "application = 5", "wsgi:number"))
        self.assertIn("is None", self.hint_of("none", "def create(): pass", "wsgi:none:create()"))
        self.assertIn("it can't be called", self.hint_of("value", "create = 5", "wsgi:value:create()"))

    def test_failing_import(self) -> None:
        self.assertIn("importing broken failed", self.hint_of("broken", "1 / 0", "wsgi:broken"))
        self.assertTrue(self.traceback.endswith("ZeroDivisionError: division by zero\n"))
        self.assertIn("importing syntax failed", self.hint_of("syntax", "def", "wsgi:syntax"))
        self.assertIn("importing leaving failed", self.hint_of("leaving", "exit(5)", "wsgi:leaving"))
        self.assertIn("raised KeyError", self.hint_of("factory", "def create(): {}[1]", "wsgi:factory:create()"))

    def test_syntax_error(self) -> None:
        self.write(app="def application(:\n")
        self.hint("wsgi:app")
        self.assertTrue(self.traceback.startswith("  File "), self.traceback)
        self.assertIn("def application(:", self.traceback)
        self.assertNotIn("importlib", self.traceback)

    def test_failing_import_with_threads(self) -> None:
        self.hint_of("threaded", "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n1/0", "wsgi:threaded")

    def test_malformed_settings(self) -> None:
        for app in ("", "hello", "cgi:hello", "wsgi:"):
            self.assertIn("is not of the form", self.hint(app))

    def test_memory_limit_holds_while_loading(self) -> None:
        self.write(hello="held = [bytearray(1000000) for _ in range(1000)]")
        worker = self.load("wsgi:hello", memory_bytes=100 << 20)
        self.assertIn("MemoryError", worker.message()["failed"]["traceback"])

    def test_children_get_no_descriptor_of_the_runtime(self) -> None:
        self.write(
            hello="""
            import os, subprocess, sys
            def application(environ, start_response):
                start_response("200 OK", [])
                code = "import os; print([(fd, os.fstat(fd).st_mode >> 12) for fd in range(3)], end=''); os.fstat(3)"
                made = subprocess.run([sys.executable, "-c", code], close_fds=False, capture_output=True, stdin=None)
                return [made.stdout, made.stderr]
            """
        )
        worker = self.load("wsgi:hello").ready()
        body = worker.ask("/").body.decode()
        # Input is a character device; the next free descriptor is the third.
        self.assertTrue(body.startswith("[(0, 2), "), body)
        self.assertIn("Bad file descriptor", body)

    def test_traceback_of_a_hang(self) -> None:
        self.write(
            hello="""
            import re
            def application(environ, start_response):
                print("hangs")
                re.match("(a*)*b", "a" * 40)
            """
        )
        worker = self.load("wsgi:hello").ready()
        with worker.connect() as client:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            self.assertTrue(worker.wait_for_log("hangs"))
            time.sleep(0.02)
            worker.process.send_signal(signal.SIGUSR2)
            self.assertTrue(worker.wait_for_log("in application"))
            self.assertIsNone(worker.process.poll())

    def test_crash_leaves_a_traceback(self) -> None:
        self.write(hello="import faulthandler\ndef application(environ, start_response):\n    faulthandler._sigsegv()")
        worker = self.load("wsgi:hello").ready()
        with worker.connect() as client:
            self.assertEqual(client.send(b"GET / HTTP/1.1\r\n\r\n").rest(), b"")
        self.assertEqual(worker.process.wait(10), -signal.SIGSEGV)
        self.assertTrue(worker.wait_for_log("Segmentation fault"))

    @unittest.skipUnless(sys.platform.startswith("linux"), "prctl")
    def test_worker_ends_with_its_parent(self) -> None:
        self.write(hello=HELLO)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                worker = Worker("wsgi:hello", self.folder.name).ready()
                os.write(write, str(worker.process.pid).encode())
                time.sleep(60)
            finally:
                os._exit(1)
        pid = int(os.read(read, 100))
        os.close(read)
        os.close(write)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                with open(f"/proc/{pid}/stat") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        return
            except OSError:
                return
            time.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        self.fail("the worker outlived its parent")


class Lines(unittest.TestCase):
    def check(self, message: Dict[str, Any]) -> Dict[str, Any]:
        line = _runtime.encode_line("kind", message)
        self.assertLess(len(line), 64 * 1024)
        self.assertEqual(line.count(b"\n"), 1)
        found: Dict[str, Any] = json.loads(line)["kind"]
        return found

    def test_short(self) -> None:
        self.assertEqual(self.check({"a": "é\n", "b": [1]}), {"a": "é\n", "b": [1]})

    def test_long_texts(self) -> None:
        for text in ("x" * 200000, "é" * 70000, "\U0001f600" * 70000, "\n" * 70000, "\0" * 1000000):
            found = self.check({"traceback": text, "request": "R1"})
            self.assertEqual(found["request"], "R1")
            self.assertIn("characters left out", found["traceback"])

    def test_long_lists(self) -> None:
        files = [f"/srv/bbs/{'d' * 90}/{n}.py" for n in range(2000)]
        found = self.check({"files": files})["files"]
        self.assertEqual(found, files[: len(found)])
        self.assertGreater(len(found), 300)


if __name__ == "__main__":
    unittest.main()
