"""Asks a server of HTTP/3 by aioquic: each line that is printed is a check that held.

Arguments: the port, the certificate that is trusted, bytes of the long bodies in millions.
"""

import asyncio
import hashlib
import ssl
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamReset


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.answers = {}

    def quic_event_received(self, event):
        if isinstance(event, StreamReset) and event.stream_id in self.answers:
            self.answers[event.stream_id][2].set_result("reset")
        for event in self.http.handle_event(event):
            if not isinstance(event, (HeadersReceived, DataReceived)):
                continue
            heads, body, over = self.answers[event.stream_id]
            if isinstance(event, HeadersReceived):
                heads.append(dict(event.headers))
            else:
                body.extend(event.data)
            if event.stream_ended:
                over.set_result("whole")

    async def ask(self, method, path, body=b"", more=()):
        stream = self._quic.get_next_available_stream_id()
        self.answers[stream] = ([], bytearray(), asyncio.get_running_loop().create_future())
        fields = [(b":method", method), (b":scheme", b"https"), (b":authority", b"site.test"), (b":path", path), *more]
        self.http.send_headers(stream, fields, end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        heads, body, over = self.answers[stream]
        async with asyncio.timeout(300):
            end = await over
        return heads, bytes(body), end


def rolling_sum(block, times):
    """What the origin makes of a body: 31 times the sum before, and the next byte, modulo 2 ** 64."""
    of_block = 0
    for byte in block:
        of_block = (of_block * 31 + byte) % 2**64
    factor, total = pow(31, len(block), 2**64), 0
    for _ in range(times):
        total = (total * factor + of_block) % 2**64
    return total


async def main(port, certificate, millions):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="site.test")
    configuration.load_verify_locations(certificate)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
        for word in (b"uri-miss", b"hit"):
            heads, body, end = await client.ask(b"GET", b"/fresh?aioquic")
            assert (heads[0][b":status"], body, end) == (b"200", b"bytes", "whole"), (heads, body, end)
            assert word in heads[0][b"cache-status"], heads
        print("a miss and a hit")
        heads, _, _ = await client.ask(b"GET", b"/early")
        assert [head.get(b":status") for head in heads] == [b"103", b"200"], heads
        print("an interim answer")
        _, body, _ = await client.ask(b"GET", b"/big/%d" % (millions * 1_000_000))
        right = hashlib.sha256(b"b" * (millions * 1_000_000)).digest()
        assert hashlib.sha256(body).digest() == right, len(body)
        print("a long answer")
        block = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(31_250))
        _, body, _ = await client.ask(b"POST", b"/sum", block * millions)
        assert body == b"%d %d" % (millions * 1_000_000, rolling_sum(block, millions)), body
        print("a long body")
        many = await asyncio.gather(*(client.ask(b"GET", b"/echo/%d" % number) for number in range(200)))
        for number, (heads, body, end) in enumerate(many):
            assert (heads[0][b":status"], end) == (b"200", "whole"), heads
            assert body.startswith(b"GET /echo/%d HTTP/1.1" % number), body
        print("two hundred requests")
        _, _, end = await client.ask(b"GET", b"/half")
        assert end == "reset", end
        print("an answer that breaks off")


asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
