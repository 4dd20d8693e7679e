"""Begins TLS in odd ways with an address at port 443: `pieces`, `endless` or `half`. Prints how that ended."""

import socket
import ssl
import sys
import time

how, address = sys.argv[1:]
stream = socket.create_connection((address, 443), timeout=15)
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def send(bytes):
    try:
        stream.sendall(bytes)
        return True
    except OSError:
        return False


def end():
    try:
        return "closed" if stream.recv(100) == b"" else "answered"
    except ConnectionError:
        return "closed"
    except TimeoutError:
        return "open"


context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
session = context.wrap_bio(coming, going, server_hostname="site.test")
try:
    session.do_handshake()
except ssl.SSLWantReadError:
    pass
hello = going.read()
if how == "endless":
    # A handshake message of 16 MB, in records of 16 KB.
    start, fill = b"\x16\x03\x01\x3e\x80\x01\xff\xff\xff", b"\x16\x03\x01\x3e\x80" + bytes(16_000)
    send(start + bytes(16_000 - 4))
    while send(fill) and len(fill) < 1 << 20:
        time.sleep(0.01)
    print(end())
elif how == "half":
    send(hello[: len(hello) // 2])
    stream.shutdown(socket.SHUT_WR)
    print(end())
else:
    for at in range(0, len(hello), 11):
        send(hello[at : at + 11])
        time.sleep(0.002)
    while True:
        try:
            session.do_handshake()
            break
        except ssl.SSLWantReadError:
            send(going.read())
            coming.write(stream.recv(16_384))
    send(going.read())
    session.write(b"GET /pieces HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n")
    send(going.read())
    answer = b""
    while b"/pieces" not in answer:
        coming.write(stream.recv(16_384))
        try:
            answer += session.read(16_384)
        except ssl.SSLWantReadError:
            pass
    print(answer.decode().splitlines()[0])
