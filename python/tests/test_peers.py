"""Connections to a worker process: only Larder may make them."""

import os
import socket
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from typing import Any, Dict, Optional

from larder_double import ROOT, Worker

sys.path.insert(0, ROOT)
from larder import _peers  # noqa: E402

FILES = {
    "app.py": """
def wsgi(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]

async def asgi(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})
""",
    "policy.py": """
import larder

@larder.request
def nothing(req):
    pass
""",
}
STRANGER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sock.settimeout(10)
    sock.connect(sys.argv[1])
    try:
        sock.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        print(len(sock.recv(100)))
    except (BrokenPipeError, ConnectionResetError):
        print(0)
"""


class Peers(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, text in FILES.items():
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(text)

    def start(self, app: str, server: Optional[Dict[str, Any]]) -> Worker:
        worker = Worker(app, self.folder, server=server)
        self.addCleanup(worker.release)
        return worker.ready()

    @staticmethod
    def stranger_gets(worker: Worker) -> int:
        run = subprocess.run([sys.executable, "-c", STRANGER, worker.path], stdout=subprocess.PIPE, check=True)
        return int(run.stdout)

    def test_the_server_is_served_and_others_are_not(self) -> None:
        own = {"pid": os.getpid(), "pid_space": _peers.own_space()}
        for app in ("wsgi:app:wsgi", "asgi:app:asgi"):
            with self.subTest(app):
                worker = self.start(app, own)
                self.assertEqual(worker.ask().body, b"hello")
                for _ in range(20):
                    self.assertEqual(self.stranger_gets(worker), 0)
                self.assertEqual(worker.ask().body, b"hello")
                self.assertTrue(worker.wait_for_log("only Larder connects here"))
                # Whoever goes on does not fill the log.
                self.assertEqual(worker.logged().count("only Larder connects here"), 8)

    def test_hooks_take_no_call_of_others(self) -> None:
        worker = self.start("hooks:policy.py", {"pid": os.getpid(), "pid_space": _peers.own_space()})
        self.assertEqual(self.stranger_gets(worker), 0)
        self.assertTrue(worker.wait_for_log("only Larder connects here"))

    def test_a_server_of_another_name_space_has_no_number_here(self) -> None:
        worker = self.start("wsgi:app:wsgi", {"pid": os.getpid(), "pid_space": "pid:[1]"})
        self.assertEqual(self.stranger_gets(worker), 0)

    def test_a_process_that_does_not_see_its_name_space_is_served_all_the_same(self) -> None:
        said = {"pid": os.getpid(), "pid_space": _peers.own_space()}
        with unittest.mock.patch.object(_peers, "own_space", return_value=None):
            server = _peers.server_of(said)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self.assertTrue(_peers.is_of(server, theirs))
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            path = os.path.join(folder, "s")
            listener.bind(path)
            listener.listen()
            with subprocess.Popen([sys.executable, "-c", STRANGER, path], stdout=subprocess.PIPE) as stranger:
                connection, _ = listener.accept()
                with connection:
                    self.assertFalse(_peers.is_of(server, connection))
                stranger.communicate()
        # Outside of a name space of its own all have the number 0.
        self.assertEqual(server, _peers.Server((os.getpid(), 0)))

    def test_a_server_that_says_nothing_of_itself_takes_all(self) -> None:
        self.assertEqual(self.start("wsgi:app:wsgi", None).ask().body, b"hello")
        unknown = {"pid": os.getpid(), "pid_space": None}
        self.assertEqual(self.start("wsgi:app:wsgi", unknown).ask().body, b"hello")


if __name__ == "__main__":
    unittest.main()
