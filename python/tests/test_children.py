"""The bound of the processes that a process may start: forks wait for a keeper."""

import errno
import json
import os
import signal
import sys
import tempfile
import time
import unittest
from typing import Any, Callable, List

from larder_double import Worker

APPLICATION = """
import errno, json, os, subprocess, sys, threading

def children():
    own = os.getpid()
    with open(f"/proc/{own}/task/{own}/children") as file:
        return [int(pid) for pid in file.read().split()]

def ordinary():
    said = {"run": [subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True).stdout.decode() for _ in range(3)]}
    with subprocess.Popen("sleep 0.01 | cat", shell=True) as shell:
        said["shell"] = shell.wait()
    threads = [threading.Thread(target=lambda: None) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        os.wait()
    except ChildProcessError:
        said["wait"] = "no child"
    return said

def many():
    # Each lives for a while, and each fork beyond the bound waits for one to end.
    for _ in range(12):
        if os.fork() == 0:
            import time
            time.sleep(0.05)
            os._exit(0)
    for _ in range(12):
        os.wait()
    return {"done": True}

def bomb():
    while True:
        if os.fork() == 0:
            os.setsid()

def without():
    try:
        if os.fork() == 0:
            os._exit(0)
    except OSError as error:
        return {"errno": error.errno}

def application(environ, start_response):
    start_response("200 OK", [])
    work = {"/ordinary": ordinary, "/many": many, "/bomb": bomb, "/without": without, "/children": children}
    return [json.dumps(work[environ["PATH_INFO"]]()).encode()]
"""


def below(pid: int) -> List[int]:
    """The processes below this one that live."""
    found: List[int] = []
    to_look_at = [pid]
    while to_look_at:
        parent = to_look_at.pop()
        try:
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children") as file:
                    children = [int(child) for child in file.read().split()]
                found += children
                to_look_at += children
        except OSError:
            continue
    return found


def wait_for(so: Callable[[], Any]) -> bool:
    end = time.monotonic() + 20
    while not so():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@unittest.skipUnless(sys.platform.startswith("linux"), "of Linux")
class Children(unittest.TestCase):
    def started(self, children_max: int) -> Worker:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with open(os.path.join(folder.name, "app.py"), "w") as file:
            file.write(APPLICATION)
        worker = Worker("wsgi:app", folder.name, children_max=children_max)
        self.addCleanup(worker.release)
        ready = worker.message()["ready"]
        if any("children" in text for text in ready["lacks"]):
            self.skipTest("; ".join(ready["lacks"]))
        self.assertIn(f"a process beyond {children_max} children does not begin", ready["confined"])
        return worker

    def said(self, worker: Worker, path: str) -> Any:
        return json.loads(worker.ask(path).body)

    def test_ordinary_children_and_threads_notice_nothing(self) -> None:
        worker = self.started(4)
        said = self.said(worker, "/ordinary")
        self.assertEqual(said, {"run": ["42\n"] * 3, "shell": 0, "wait": "no child"})
        (keeper,) = self.said(worker, "/children")
        self.assertEqual(worker.stop(), 0)
        self.assertTrue(wait_for(lambda: not os.path.exists(f"/proc/{keeper}")), "the keeper ends with its process")

    def test_a_fork_beyond_the_bound_waits_for_one_to_end(self) -> None:
        worker = self.started(3)
        self.assertEqual(self.said(worker, "/many"), {"done": True})
        self.assertEqual(worker.stop(), 0)

    def test_a_fork_bomb_sleeps_at_the_bound(self) -> None:
        bound = 20
        worker = self.started(bound)
        pid = worker.process.pid
        with worker.connect() as client:
            client.send(b"GET /bomb HTTP/1.1\r\nHost: a\r\n\r\n")
            self.addCleanup(lambda: [os.kill(one, signal.SIGKILL) for one in [pid, *below(pid)]])
            self.assertTrue(wait_for(lambda: len(below(pid)) > bound + 1), "one more than the bound, and the keeper")
            most = 0
            for _ in range(50):
                most = max(most, len(below(pid)))
                time.sleep(0.01)
            # Those that were permitted and had not begun when the keeper looked count too.
            self.assertLessEqual(most, 2 * bound + 2)
            before = sum(ticks(one) for one in below(pid))
            time.sleep(0.5)
            self.assertLess(sum(ticks(one) for one in below(pid)) - before, 25, "nobody but the keeper needs a processor")

    def test_nobody_forks_without_the_keeper(self) -> None:
        worker = self.started(4)
        (keeper,) = self.said(worker, "/children")
        os.kill(keeper, signal.SIGKILL)
        self.assertTrue(wait_for(lambda: self.said(worker, "/without") == {"errno": errno.ENOSYS}))
        self.assertEqual(worker.stop(), 0)


def ticks(pid: int) -> int:
    """The time that a process took of a processor, in hundredths of a second."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


if __name__ == "__main__":
    unittest.main()
