"""The board of the measurements is an application that works."""

import tempfile
import unittest
from unittest import mock

from larder_double import APPS, Worker


class Board(unittest.TestCase):
    def test_threads_and_posts(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", {"BOARD": folder + "/board.db"}):
            worker = Worker("wsgi:board", APPS, write=[folder])
            self.addCleanup(worker.release)
            self.assertIn("ready", worker.message())
            made = worker.ask("/", method="POST", body=b"title=%3Cb%3E&author=a&text=first")
            self.assertEqual((made.status, made.field("Location")), (303, "/thread/1"))
            self.assertEqual(worker.ask("/", method="POST", body=b"thread=1&author=b&text=second").status, 303)
            self.assertEqual(worker.ask("/", method="POST", body=b"thread=7&text=lost").status, 404)
            self.assertIn(b'<a href="/thread/1">&lt;b&gt;</a>', worker.ask("/").body)
            self.assertIn(b"<b>a</b> first<p><b>b</b> second", worker.ask("/thread/1").body)
            self.assertEqual([worker.ask(path).status for path in ("/thread/2", "/thread/x")], [404, 404])
            self.assertEqual(worker.stop(), 0)


if __name__ == "__main__":
    unittest.main()
