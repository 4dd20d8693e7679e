"""A WSGI application for the tests: the path says what happens."""

import gzip
import hashlib
import io
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time

closed = []
barrier = threading.Barrier(4)
TEXT = [("Content-Type", "text/plain")]
ROUTES = {}


def route(function):
    ROUTES["/" + function.__name__] = function
    return function


def application(environ, start_response):
    head = environ["PATH_INFO"][1:].partition("/")[0]
    return ROUTES.get("/" + head, environ_page)(environ, start_response)


class Body:
    """An iterable that notes that it was closed."""

    def __init__(self, label, pieces):
        self.label = label
        self.pieces = pieces

    def __iter__(self):
        return iter(self.pieces)

    def close(self):
        closed.append(self.label)


def environ_page(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({k: v for k, v in environ.items() if isinstance(v, (str, bool, tuple))}).encode()]


@route
def closings(environ, start_response):
    start_response("200 OK", TEXT)
    text = ",".join(closed)
    closed.clear()
    return [text.encode()]


@route
def whole(environ, start_response):
    start_response("200 OK", TEXT)
    return Body("whole", [b"one", b"", b"two"])


@route
def declared(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "8")])
    return [b"declared"]


@route
def changes_environ(environ, start_response):
    names = ("HTTP_X_A", "QUERY_STRING", "larder.request", "added")
    found = {name: environ.get(name) for name in names}
    for name in names:
        environ[name] = "changed"
    start_response("200 OK", TEXT)
    return [json.dumps(found).encode()]


@route
def generator(environ, start_response):
    start_response("200 OK", TEXT)
    yield b""
    yield b"one"
    yield b"two"


@route
def late_start(environ, start_response):
    yield b""
    start_response("200 OK", TEXT)
    yield b"late"


@route
def empty(environ, start_response):
    start_response("200 OK", TEXT)
    return []


@route
def large(environ, start_response):
    start_response("200 OK", TEXT)
    return [b"x" * 1000000]


@route
def large_pieces(environ, start_response):
    start_response("200 OK", TEXT)
    return (b"y" * 100000 for _ in range(10))


@route
def status(environ, start_response):
    start_response(environ["QUERY_STRING"].replace("%20", " "), TEXT)
    return Body("status", [b"body"])


@route
def no_content(environ, start_response):
    start_response("204 No Content", [("X-A", "1"), ("Content-length", "0")])
    return []


@route
def length(environ, start_response):
    declared, pieces = environ["QUERY_STRING"].split("=")
    start_response("200 OK", [*TEXT, ("Content-Length", declared)])
    pieces = [piece.encode() for piece in pieces.split(",")]
    return pieces if len(pieces) == 1 else Body("length", pieces)


@route
def write(environ, start_response):
    out = start_response("200 OK", TEXT)
    out(b"written ")
    out(b"twice ")
    return [b"returned"]


@route
def digest(environ, start_response):
    stream = environ["wsgi.input"]
    data = stream.read()
    start_response("200 OK", TEXT)
    return [f"{len(data)} {hashlib.sha256(data).hexdigest()} {stream.read(5)!r}".encode()]


@route
def read_ways(environ, start_response):
    stream = environ["wsgi.input"]
    found = [stream.read(0), stream.read(2), stream.readline(), stream.readline(2), stream.readline(), stream.readlines(1)]
    found += [list(stream), stream.readline(), stream.read(100), stream.read(1)]
    start_response("200 OK", TEXT)
    return [repr(found).encode()]


@route
def ignore_body(environ, start_response):
    start_response("200 OK", TEXT)
    return [b"ignored"]


@route
def echo_stream(environ, start_response):
    start_response("200 OK", TEXT)
    while True:
        data = environ["wsgi.input"].read(4)
        if not data:
            return
        yield data


@route
def fail(environ, start_response):
    raise ValueError("nobody caught it é")


@route
def fail_started(environ, start_response):
    start_response("200 OK", TEXT)
    raise ValueError("after start_response")


@route
def fail_late(environ, start_response):
    start_response("200 OK", TEXT)

    def pieces():
        yield b"begun"
        raise ValueError("after the head")

    return Body("fail_late", pieces())


@route
def fail_early(environ, start_response):
    start_response("200 OK", TEXT)

    def pieces():
        raise ValueError("before the head")
        yield b""

    return Body("fail_early", pieces())


@route
def exit(environ, start_response):
    sys.exit("an application does not end the process")


@route
def interrupt(environ, start_response):
    raise KeyboardInterrupt


@route
def memory(environ, start_response):
    held = []
    while True:
        held.append(bytearray(1000000))


@route
def exc_info(environ, start_response):
    start_response("200 OK", [("X-First", "1")])
    try:
        raise ValueError("replaced")
    except ValueError:
        start_response("503 Service Unavailable", [("X-Second", "2")], sys.exc_info())
    return [b"sorry"]


@route
def exc_info_late(environ, start_response):
    start_response("200 OK", TEXT)
    yield b"begun"
    try:
        raise ValueError("too late")
    except ValueError:
        start_response("500 Error", TEXT, sys.exc_info())
    yield b"never"


@route
def start_twice(environ, start_response):
    start_response("200 OK", TEXT)
    start_response("200 OK", TEXT)
    return [b""]


@route
def no_start(environ, start_response):
    return [b"body"]


@route
def text(environ, start_response):
    start_response("200 OK", TEXT)
    return ["text"]


@route
def field(environ, start_response):
    fields = {
        "crlf": ("X-Bad", "a\r\nSet-Cookie: x=1"),
        "lf": ("X-Bad", "a\nb"),
        "nul": ("X-Bad", "a\0b"),
        "name": ("X Bad", "a"),
        "name-crlf": ("X-Bad\r\nY", "a"),
        "hop": ("Connection", "close"),
        "coding": ("transfer-encoding", "chunked"),
        "number": ("X-Bad", 5),
        "bytes": (b"X-Bad", "a"),
        "wide": ("X-Bad", "\u2713"),
        "length": ("Content-Length", "-1"),
    }
    start_response("200 OK", [("X-Good", "yes"), fields[environ["QUERY_STRING"]]])
    return [b"body"]


@route
def latin(environ, start_response):
    start_response("200 OK", [("X-Name", "caf\xe9")])
    return [b"ok"]


def _file(content=b"0123456789" * 20000):
    file = tempfile.TemporaryFile()
    file.write(content)
    file.seek(0)
    return file


@route
def file(environ, start_response):
    opened = _file()
    opened.seek(5)
    start_response("200 OK", TEXT)
    return environ["wsgi.file_wrapper"](opened)


@route
def file_length(environ, start_response):
    start_response("200 OK", [("Content-Length", environ["QUERY_STRING"])])
    return environ["wsgi.file_wrapper"](_file(b"0123456789"), 4)


@route
def file_gzip(environ, start_response):
    packed = _file(gzip.compress(b"unpacked"))
    start_response("200 OK", TEXT)
    return environ["wsgi.file_wrapper"](gzip.GzipFile(fileobj=packed))


@route
def file_memory(environ, start_response):
    class Noted:
        read = io.BytesIO(b"in memory").read

        def close(self):
            closed.append("file_memory")

    start_response("200 OK", TEXT)
    return environ["wsgi.file_wrapper"](Noted())


@route
def endless(environ, start_response):
    start_response("200 OK", TEXT)

    def pieces():
        while True:
            yield b"z" * 1000

    return Body("endless", pieces())


@route
def ticking(environ, start_response):
    """Small pieces, far between: the send buffer never fills."""
    start_response("200 OK", TEXT)

    def pieces():
        while True:
            time.sleep(0.005)
            yield b"."

    return Body("ticking", pieces())


@route
def meet(environ, start_response):
    """Ends only when four requests are under way at once."""
    barrier.wait(10)
    start_response("200 OK", TEXT)
    return [threading.current_thread().name.encode()]


@route
def slow(environ, start_response):
    print("slow begins")
    time.sleep(0.3)
    start_response("200 OK", TEXT)
    return [b"finished"]


served = []


@route
def waits(environ, start_response):
    """Wait until the file in the query is there."""
    served.append(environ["QUERY_STRING"])
    print("waits for", os.path.basename(environ["QUERY_STRING"]))
    while not os.path.exists(environ["QUERY_STRING"]):
        time.sleep(0.005)
    start_response("200 OK", [])
    return [",".join(map(os.path.basename, served)).encode()]


@route
def prints(environ, start_response):
    print("printed")
    sys.stdout.flush()
    environ["wsgi.errors"].write("to wsgi.errors\n")
    os.system("echo from a child; cat")
    start_response("200 OK", TEXT)
    return [b"ok"]


@route
def long_error(environ, start_response):
    raise ValueError("é" * 200000)


@route
def fork(environ, start_response):
    """A child of multiprocessing, which is ended by SIGTERM; and one that outlives the request."""
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join()
    if not os.fork():
        time.sleep(2)
        os._exit(0)
    start_response("200 OK", [("Content-Length", "5")])
    return [str(process.exitcode).encode()]


@route
def settings(environ, start_response):
    start_response("200 OK", TEXT)
    return [repr("LARDER_SCRIPT" in os.environ).encode()]
