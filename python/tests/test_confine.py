"""Bounds of a process: what it may not do any more, in a child of this process."""

import json
import os
import sys
import tempfile
import textwrap
import unittest
from typing import Any, Dict

from larder_double import ROOT, Worker

APPLICATION = """
import json, os, socket

def attempt(work):
    try:
        work()
    except OSError as error:
        return error.errno
    return 0

def application(environ, start_response):
    start_response("200 OK", [])
    elsewhere = environ["QUERY_STRING"]
    child = os.fork()
    if child == 0:
        os._exit(attempt(lambda: open(elsewhere, "w").close()))
    said = {
        "folder": attempt(lambda: open("own", "w").close()),
        "elsewhere": attempt(lambda: open(elsewhere, "w").close()),
        "child": os.WEXITSTATUS(os.waitpid(child, 0)[1]),
        "truncated": attempt(lambda: os.truncate(elsewhere, 0)),
        "null": attempt(lambda: open("/dev/null", "w").close()),
        "inet": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()),
        "unix": attempt(lambda: socket.socket(socket.AF_UNIX).close()),
    }
    return [json.dumps(said).encode()]
"""


def folder_outside() -> "tempfile.TemporaryDirectory[str]":
    """Make a folder that is not below those for temporary files, where everybody may write. The tree may lie below one."""
    for place in (str(ROOT), os.path.expanduser("~"), "/var/lib", "/opt"):
        if not place.startswith(("/tmp/", "/var/tmp/", "/dev/shm/")) and os.access(place, os.W_OK):
            return tempfile.TemporaryDirectory(dir=place)
    raise AssertionError("this user can write in no folder that is not for temporary files: set HOME to such a one")


class Confinement(unittest.TestCase):
    def said(self, **settings: Any) -> Dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder, folder_outside() as outside:
            with open(os.path.join(folder, "app.py"), "w") as file:
                file.write(textwrap.dedent(APPLICATION))
            elsewhere = os.path.join(outside, "file")
            open(elsewhere, "w").close()
            write = [path.replace("OUTSIDE", outside) for path in settings.pop("write", [])]
            worker = Worker("wsgi:app", folder, write=write, **settings)
            self.addCleanup(worker.release)
            self.ready = worker.message()["ready"]
            said: Dict[str, Any] = json.loads(worker.ask(f"/?{elsewhere}").body)
            self.assertEqual(worker.stop(), 0)
            return said

    def test_writing(self) -> None:
        free = dict.fromkeys(("folder", "elsewhere", "child", "truncated", "null", "inet", "unix"), 0)
        self.assertEqual(self.said(write=["/"]), free)
        self.assertEqual(self.said(write=["OUTSIDE"]), free)
        bound = self.said()
        if any("writing" in text for text in self.ready["lacks"]):
            self.skipTest("; ".join(self.ready["lacks"]))
        # Whatever is started has the same bounds.
        self.assertEqual(bound, {**free, "elsewhere": 13, "child": 13, "truncated": 13})

    def test_a_refusal_names_the_setting(self) -> None:
        for text in ("open('/proc/version', 'w')", "import sqlite3; sqlite3.connect('/proc/none/x.db')"):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "app.py"), "w") as file:
                    file.write(text)
                worker = Worker("wsgi:app", folder)
                self.addCleanup(worker.release)
                self.assertIn("`write` of its [[python]]", worker.message()["failed"]["traceback"], text)

    def test_network(self) -> None:
        said = self.said(network=False, write=["/"])
        if any("network" in text for text in self.ready["lacks"]):
            self.skipTest("; ".join(self.ready["lacks"]))
        self.assertEqual((said["inet"], said["unix"]), (13, 0))

    @unittest.skipUnless(sys.platform.startswith("linux"), "of Linux")
    def test_bounds_are_told(self) -> None:
        self.said()
        self.assertIn("no_new_privs", self.ready["confined"])
        self.said(memory_bytes=1 << 30)
        self.assertTrue(any("1073741824" in text for text in self.ready["confined"]), self.ready)


if __name__ == "__main__":
    unittest.main()
