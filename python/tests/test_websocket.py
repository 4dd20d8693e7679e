"""WebSocket: frames as values, and a client behind Larder."""

import base64
import json
import os
import random
import sys
import time
import unittest
from typing import List, Optional, Tuple

from larder_double import ROOT, Client, Response, Worker, WorkerCase, request

sys.path.insert(0, ROOT)

from larder import _websocket  # noqa: E402
from larder._websocket import Decoder, Frame, ProtocolFault  # noqa: E402

KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = ("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", KEY)


def masked(kind: int, payload: bytes, final: bool = True, mask: bytes = b"\1\2\3\4") -> bytes:
    head = bytearray(_websocket.frame_head(kind, len(payload)))
    head[0] = kind | (128 if final else 0)
    head[1] |= 128
    return bytes(head) + mask + _websocket.apply_mask(payload, mask)


class Frames(unittest.TestCase):
    def fault(self, data: bytes) -> Optional[int]:
        try:
            Decoder().feed(data)
        except ProtocolFault as fault:
            return fault.code
        return None

    def test_accept_key(self) -> None:
        # The example of RFC 6455, 1.3.
        self.assertEqual(_websocket.accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        for key in ("", "x", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25j", "é"):
            self.assertIsNone(_websocket.accept_key(key), key)

    def test_examples(self) -> None:
        # RFC 6455, 5.7.
        self.assertEqual(Decoder().feed(bytes.fromhex("818537fa213d7f9f4d5158")), [Frame(1, b"Hello")])
        self.assertEqual(_websocket.frame_head(1, 5), b"\x81\x05")
        self.assertEqual(_websocket.frame_head(2, 256), bytes.fromhex("827e0100"))
        self.assertEqual(_websocket.frame_head(2, 65536), bytes.fromhex("827f0000000000010000"))

    def test_any_cut(self) -> None:
        data = masked(1, b"fra", final=False) + masked(9, b"ping") + masked(0, b"", final=False) + masked(0, b"gment")
        data += masked(2, b"x" * 300) + masked(2, b"y" * 70000) + masked(8, b"\x03\xe8bye")
        expected = [Frame(9, b"ping"), Frame(1, b"fragment"), Frame(2, b"x" * 300), Frame(2, b"y" * 70000), Frame(8, b"\x03\xe8bye")]
        source = random.Random(1)
        for _ in range(50):
            decoder = Decoder()
            found: List[Frame] = []
            at = 0
            while at < len(data):
                size = source.choice((1, 2, 7, 100, 40000))
                found += decoder.feed(data[at : at + size])
                at += size
            self.assertEqual(found, expected)

    def test_faults(self) -> None:
        for data, code in (
            (b"\x81\x05Hello", 1002),
            (b"\xc1\x80\0\0\0\0", 1002),
            (b"\x83\x80\0\0\0\0", 1002),
            (masked(9, b"x" * 126), 1002),
            (masked(9, b"x", final=False), 1002),
            (masked(0, b"x"), 1002),
            (masked(1, b"x", final=False) + masked(1, b"x"), 1002),
            (b"\x82\xff" + b"\xff" * 8, 1009),
            (masked(1, b"x", final=False) + b"\x00\xff" + (16 << 20).to_bytes(8, "big"), 1009),
        ):
            self.assertEqual(self.fault(data), code, data[:20])

    def test_close(self) -> None:
        self.assertEqual(_websocket.parse_close(b""), (1005, ""))
        self.assertEqual(_websocket.parse_close(b"\x0f\xa0ok"), (4000, "ok"))
        for payload in (b"\x03", b"\x03\xe7", b"\x03\xed", b"\x13\x88", b"\x03\xe8\xff"):
            with self.assertRaises(ProtocolFault):
                _websocket.parse_close(payload)

    def test_random_bytes(self) -> None:
        source = random.Random(3)
        for _ in range(2000):
            try:
                Decoder().feed(source.randbytes(source.randrange(40)))
            except ProtocolFault:
                pass


class Application(WorkerCase):
    APP = "asgi:asgi_cases:app"

    def open(self, target: str = "/echo", *fields: str) -> Tuple[Client, Response]:
        client = self.worker.connect().send(request(target, *UPGRADE, *fields))
        self.addCleanup(client.socket.close)
        head = client.until(b"\r\n\r\n").decode("latin-1")
        return client, Response(int(head.split(" ")[1]), head, b"", True)

    def frame(self, client: Client) -> Tuple[int, bytes]:
        first, length = client.take(2)
        if length == 126:
            length = int.from_bytes(client.take(2), "big")
        elif length == 127:
            length = int.from_bytes(client.take(8), "big")
        return first, client.take(length)

    def happened(self, expected: str) -> None:
        """Wait until the application noted this; connections of earlier tests may end meanwhile."""
        deadline = time.monotonic() + 5
        while expected not in self.worker.ask("/happened").body.decode().split(","):
            self.assertLess(time.monotonic(), deadline, "the application did not note it")

    def test_handshake(self) -> None:
        _, response = self.open("/echo", "Sec-WebSocket-Protocol: chat, other")
        self.assertEqual(response.status, 101)
        for name, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            ("Sec-WebSocket-Protocol", "chat"),
            ("x-ws", "1"),
        ):
            self.assertEqual(response.field(name), value)

    def test_scope(self) -> None:
        client, _ = self.open("/ws-scope?q=1", "X-Forwarded-Proto: https", "X-Forwarded-For: 10.0.0.1")
        scope = json.loads(self.frame(client)[1])
        self.assertEqual((scope["type"], scope["scheme"], scope["path"]), ("websocket", "wss", "/ws-scope"))
        self.assertEqual((scope["client"], scope["subprotocols"]), (["10.0.0.1", 0], []))
        self.assertNotIn("method", scope)
        self.assertEqual(self.frame(client), (0x88, b"\x03\xe8"))

    def test_messages(self) -> None:
        client, _ = self.open()
        for kind, payload in ((1, "é✓".encode()), (1, b""), (2, b"\0\xff"), (2, b""), (2, b"x" * 200), (2, b"y" * 1000000)):
            client.send(masked(kind, payload))
            self.assertEqual(self.frame(client), (128 | kind, payload))
        client.send(masked(1, b"in ", final=False) + masked(9, b"?") + masked(0, b"pieces"))
        self.assertEqual(self.frame(client), (0x8A, b"?"))
        self.assertEqual(self.frame(client), (0x81, b"in pieces"))
        client.send(masked(8, b"\x0f\xa1bye"))
        self.assertEqual(self.frame(client), (0x88, b"\x0f\xa1bye"))
        self.assertEqual(client.rest(), b"")
        self.happened("disconnect 4001")

    def test_messages_with_the_handshake(self) -> None:
        client = self.worker.connect().send(request("/echo", *UPGRADE) + masked(1, b"early"))
        client.until(b"\r\n\r\n")
        self.assertEqual(self.frame(client), (0x81, b"early"))
        client.socket.close()
        self.happened("disconnect 1006")

    def test_close_by_the_application(self) -> None:
        client, _ = self.open("/push")
        for _ in range(300):
            self.assertEqual(self.frame(client), (0x82, b"x" * 10000))
        self.assertEqual(self.frame(client), (0x88, b"\x0f\xa0enough"))
        client.send(masked(8, b"\x0f\xa0"))
        self.assertEqual(client.rest(), b"")

    def test_faults_of_the_client(self) -> None:
        for data, code in ((b"\x81\x05Hello", 1002), (masked(1, b"\xff"), 1007), (b"\x82\xff" + b"\x7f" * 8, 1009)):
            client, _ = self.open()
            client.send(data)
            first, payload = self.frame(client)
            self.assertEqual((first, int.from_bytes(payload[:2], "big")), (0x88, code))
            client.rest()
            self.happened(f"disconnect {code}")

    def test_refusals(self) -> None:
        _, response = self.open("/refuse")
        self.assertEqual((response.status, response.field("Connection")), (403, "close"))
        client, response = self.open("/denial")
        self.assertEqual((response.status, client.rest()), (401, b"who are you"))

    def test_failures(self) -> None:
        _, response = self.open("/fail")
        self.assertEqual(response.status, 500)
        self.assertIn("before accept", self.worker.error()["traceback"])
        client, _ = self.open("/fail-late")
        self.assertEqual(self.frame(client), (0x88, b"\x03\xf3"))
        self.assertIn("after accept", self.worker.error()["traceback"])

    def test_malformed_handshakes(self) -> None:
        for fields in (
            UPGRADE[:3],
            UPGRADE[:2] + (KEY,),
            UPGRADE[:3] + ("Sec-WebSocket-Key: " + base64.b64encode(os.urandom(15)).decode(),),
            UPGRADE + ("Content-Length: 5",),
        ):
            self.assertEqual(self.worker.ask("/echo", *fields).status, 400, fields)


class Drain(unittest.TestCase):
    def test_drain(self) -> None:
        worker = Worker("asgi:asgi_cases:app").ready()
        client = worker.connect().send(request("/echo", *UPGRADE))
        client.until(b"\r\n\r\n")
        worker.process.terminate()
        self.assertEqual(client.take(4), b"\x88\x02\x03\xf4")
        client.send(masked(8, b"\x03\xf4"))
        self.assertEqual(client.rest(), b"")
        client.socket.close()
        self.assertTrue(worker.wait_for_log("lifespan shutdown"))
        self.assertEqual(worker.process.wait(10), 0)
        worker.release()


if __name__ == "__main__":
    unittest.main()
