"""A double of Larder: starts a worker process as Larder does, and speaks raw bytes with it."""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any, Dict, List, NamedTuple, Optional

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
APPS = os.path.join(ROOT, "tests", "apps")
BOOT = f"import sys; sys.path.insert(0, {ROOT!r}); from larder._runtime import main; main()"
SECONDS = 10.0


class Response(NamedTuple):
    status: int
    head: str
    body: bytes
    complete: bool
    """Whether the body ended as its framing says."""

    def field(self, name: str) -> Optional[str]:
        for line in self.head.split("\r\n")[1:]:
            key, _, value = line.partition(": ")
            if key.lower() == name.lower():
                return value
        return None


class Client:
    """One connection to a worker."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(SECONDS)
        self.socket.connect(path)
        self.buffer = b""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.socket.close()

    def send(self, data: bytes) -> "Client":
        self.socket.sendall(data)
        return self

    def ask(self, target: str = "/", *fields: str, method: str = "GET", body: bytes = b"") -> Response:
        self.send(request(target, *fields, method=method, body=body))
        return self.response(method)

    def more(self) -> bool:
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self.buffer += data
        return bool(data)

    def until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            if not self.more():
                raise EOFError(self.buffer)
        before, _, self.buffer = self.buffer.partition(mark)
        return before

    def rest(self) -> bytes:
        """Everything until the worker closes the connection."""
        while self.more():
            pass
        data, self.buffer = self.buffer, b""
        return data

    def take(self, size: int) -> bytes:
        while len(self.buffer) < size and self.more():
            pass
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def response(self, method: str = "GET") -> Response:
        head = self.until(b"\r\n\r\n").decode("latin-1")
        shell = Response(int(head.split(" ")[1]), head, b"", True)
        length = shell.field("Content-Length")
        if method == "HEAD" or shell.status in (100, 204, 304):
            return shell
        if shell.field("Transfer-Encoding") == "chunked":
            return self.chunked(shell)
        if length is None:
            return shell._replace(body=self.rest())
        body = self.take(int(length))
        return shell._replace(body=body, complete=len(body) == int(length))

    def chunked(self, shell: Response) -> Response:
        body = b""
        try:
            while True:
                size = int(self.until(b"\r\n"), 16)
                if not size:
                    assert self.until(b"\r\n") == b""
                    return shell._replace(body=body)
                piece = self.take(size)
                body += piece
                if len(piece) < size or self.take(2) != b"\r\n":
                    break
        except EOFError:
            pass
        return shell._replace(body=body, complete=False)


def request(target: str = "/", *fields: str, method: str = "GET", body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1"]
    if not any(field.lower().startswith("host:") for field in fields):
        lines.append("Host: bbs.example")
    lines += fields
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class Worker:
    """A worker process and its descriptors."""

    def __init__(self, app: str, folder: str = APPS, **settings: Any) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "s")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen(128)
        self._control, write = os.pipe()
        self._lines = b""
        self.log = tempfile.TemporaryFile()
        script: Dict[str, Any] = {"app": app, "folder": folder, "threads": 1, "memory_bytes": None, "body_bytes_max": None}
        script.update({"debug": False, **settings})
        environment = dict(os.environ, LARDER_SCRIPT=json.dumps(script))
        inherited = [settings["running"]] if settings.get("running") is not None else []
        self.process = subprocess.Popen(
            [sys.executable, "-B", "-c", BOOT],
            cwd=folder,
            stdin=listener,
            stdout=write,
            stderr=self.log,
            env=environment,
            pass_fds=inherited,
        )
        os.close(write)
        listener.close()

    def message(self) -> Dict[str, Any]:
        """The next line of the control pipe."""
        while b"\n" not in self._lines:
            readable, _, _ = select.select([self._control], [], [], SECONDS)
            data = os.read(self._control, 1 << 20) if readable else b""
            if not data:
                raise EOFError(f"no more reports; log: {self.logged()}")
            self._lines += data
        line, _, self._lines = self._lines.partition(b"\n")
        assert len(line) < 64 * 1024, "line too long"
        message: Dict[str, Any] = json.loads(line)
        return message

    def ready(self) -> "Worker":
        message = self.message()
        assert "ready" in message, message
        return self

    def silent(self) -> bool:
        """Whether there is no report."""
        return not self._lines and not select.select([self._control], [], [], 0)[0]

    def error(self) -> Dict[str, Any]:
        found: Dict[str, Any] = self.message()["error"]
        return found

    def close_control(self) -> None:
        os.close(self._control)
        self._control = -1

    def connect(self) -> Client:
        return Client(self.path)

    def ask(self, target: str = "/", *fields: str, method: str = "GET", body: bytes = b"") -> Response:
        with self.connect() as client:
            return client.ask(target, *fields, method=method, body=body)

    def logged(self) -> str:
        # The process writes at the offset that it shares with this file: it is not moved.
        return os.pread(self.log.fileno(), os.fstat(self.log.fileno()).st_size, 0).decode("utf-8", "replace")

    def wait_for_log(self, text: str) -> bool:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if text in self.logged():
                return True
            time.sleep(0.005)
        return False

    def stop(self) -> int:
        """End the process as Larder does, and return its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(SECONDS)
        finally:
            self.release()

    def release(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
        self.log.close()
        self.directory.cleanup()


class WorkerCase(unittest.TestCase):
    """Tests that share one worker, and leave it alive and without reports that they did not expect."""

    APP = ""
    SETTINGS: Dict[str, Any] = {}
    worker: Worker

    @classmethod
    def setUpClass(cls) -> None:
        cls.worker = Worker(cls.APP, **cls.SETTINGS).ready()

    @classmethod
    def tearDownClass(cls) -> None:
        status = cls.worker.stop()
        assert status == 0, f"exit status {status}"

    def tearDown(self) -> None:
        self.assertIsNone(self.worker.process.poll(), "the worker died")
        left: List[Dict[str, Any]] = []
        while not self.worker.silent():
            left.append(self.worker.message())
        self.assertEqual(left, [])
