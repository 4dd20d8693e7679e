"""An ASGI application for the tests: the path says what happens."""

import asyncio
import contextvars
import hashlib
import json
import multiprocessing
import os
import sys
import time

events = []
ROUTES = {}
variable = contextvars.ContextVar("variable", default="unset")
gate = None
waiting = 0
TEXT = [(b"content-type", b"text/plain")]


def route(function):
    ROUTES[function.__name__] = function
    return function


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(scope, receive, send)
    if scope["type"] == "websocket":
        return await websocket(scope, receive, send)
    await ROUTES.get(scope["path"][1:], scope_page)(scope, receive, send)


async def lifespan(scope, receive, send):
    assert (await receive())["type"] == "lifespan.startup"
    scope["state"]["started"] = "yes"
    await send({"type": "lifespan.startup.complete"})
    assert (await receive())["type"] == "lifespan.shutdown"
    print("lifespan shutdown")
    await send({"type": "lifespan.shutdown.complete"})


async def websocket(scope, receive, send):
    path = scope["path"]
    assert (await receive()) == {"type": "websocket.connect"}
    if path == "/refuse":
        return await send({"type": "websocket.close"})
    if path == "/fail":
        raise ValueError("before accept")
    if path == "/denial":
        await send({"type": "websocket.http.response.start", "status": 401, "headers": TEXT})
        return await send({"type": "websocket.http.response.body", "body": b"who are you"})
    protocols = scope["subprotocols"]
    await send({"type": "websocket.accept", "subprotocol": protocols[0] if protocols else None, "headers": [(b"x-ws", b"1")]})
    if path == "/ws-scope":
        scope = {key: value for key, value in scope.items() if key not in ("app", "state")}
        return await send({"type": "websocket.send", "text": json.dumps(scope, default=repr)})
    if path == "/fail-late":
        raise ValueError("after accept")
    if path == "/push":
        for _ in range(300):
            await send({"type": "websocket.send", "bytes": b"x" * 10000})
        return await send({"type": "websocket.close", "code": 4000, "reason": "enough"})
    while True:
        event = await receive()
        if event["type"] == "websocket.disconnect":
            events.append(f"disconnect {event['code']}")
            return
        message = {key: value for key, value in event.items() if value is not None}
        await send({**message, "type": "websocket.send"})


async def answer(send, body, status=200, headers=TEXT):
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def scope_page(scope, receive, send):
    await answer(send, json.dumps(scope, default=lambda value: value.decode("latin-1")).encode())


@route
async def empty(scope, receive, send):
    await answer(send, b"")


@route
async def happened(scope, receive, send):
    text = ",".join(events)
    events.clear()
    await answer(send, text.encode())


@route
async def ignore_body(scope, receive, send):
    await answer(send, b"ignored")


@route
async def large(scope, receive, send):
    await answer(send, b"x" * 1000000)


@route
async def stream(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [*TEXT, (b"Connection", b"keep-alive")]})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await asyncio.sleep(0)
    await send({"type": "http.response.body", "more_body": True})
    await send({"type": "http.response.body", "body": bytearray(b"two"), "more_body": True})
    await send({"type": "http.response.body"})


@route
async def large_stream(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    for _ in range(20):
        await send({"type": "http.response.body", "body": b"y" * 100000, "more_body": True})
    await send({"type": "http.response.body"})


@route
async def endless(scope, receive, send):
    """Ends by the disconnect, which only is seen if send() waits when the buffer is full."""
    await send({"type": "http.response.start", "status": 200, "headers": []})

    async def produce():
        while True:
            await send({"type": "http.response.body", "body": b"z" * 10000, "more_body": True})
            events_sent[0] += 1
            await asyncio.sleep(0)

    events_sent = [0]
    task = asyncio.ensure_future(produce())
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()
    events.append(f"endless {events_sent[0] < 500}")


@route
async def late_end(scope, receive, send):
    """The length is reached some time before the application ends its response."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"long", "more_body": True})
    await asyncio.sleep(0.03)
    await send({"type": "http.response.body"})
    events.append("late end")


@route
async def digest(scope, receive, send):
    whole = hashlib.sha256()
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            events.append("disconnect in body")
            return
        size += len(event["body"])
        whole.update(event["body"])
        if not event["more_body"]:
            break
    await answer(send, f"{size} {whole.hexdigest()}".encode())


@route
async def slow_reader(scope, receive, send):
    await asyncio.sleep(0.1)
    await digest(scope, receive, send)


@route
async def echo_stream(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    more = True
    while more:
        event = await receive()
        more = event["more_body"]
        await send({"type": "http.response.body", "body": event["body"], "more_body": more})


@route
async def wait_for_disconnect(scope, receive, send):
    assert (await receive()) == {"type": "http.request", "body": b"", "more_body": False}
    event = await receive()
    await send({"type": "http.response.start", "status": 200})
    events.append(event["type"])


@route
async def background(scope, receive, send):
    await answer(send, b"done")
    events.append((await receive())["type"])
    await asyncio.sleep(0.02)
    events.append("background")


@route
async def fail(scope, receive, send):
    raise ValueError("nobody caught it")


@route
async def fail_suspended(scope, receive, send):
    await asyncio.sleep(0)
    raise ValueError("after a wait")


@route
async def fail_started(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    raise ValueError("after the start")


@route
async def fail_late(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    raise ValueError("after the head")


@route
async def exit(scope, receive, send):
    sys.exit(5)


@route
async def cancel(scope, receive, send):
    asyncio.current_task().cancel()
    await asyncio.sleep(1)


@route
async def nothing(scope, receive, send):
    pass


@route
async def unfinished(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})


@route
async def body_first(scope, receive, send):
    await send({"type": "http.response.body", "body": b""})


@route
async def start_twice(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.start", "status": 200})


@route
async def unknown_message(scope, receive, send):
    await send({"type": "http.response.debug"})


@route
async def after_end(scope, receive, send):
    await answer(send, b"done")
    await send({"type": "http.response.body", "body": b"more"})


@route
async def field(scope, receive, send):
    fields = {
        b"crlf": (b"x-bad", b"a\r\nset-cookie: x=1"),
        b"lf": (b"x-bad", b"a\nb"),
        b"nul": (b"x-bad", b"a\0"),
        b"name": (b"x bad", b"a"),
        b"text": ("x-bad", b"a"),
        b"value": (b"x-bad", "a"),
        b"length": (b"content-length", b"-1"),
    }
    await answer(send, b"body", headers=[(b"x-good", b"yes"), fields[scope["query_string"]]])


@route
async def hop(scope, receive, send):
    await answer(send, b"body", headers=[(b"transfer-encoding", b"chunked"), (b"Connection", b"close"), (b"x-a", b"1")])


@route
async def status(scope, receive, send):
    await answer(send, b"body", status=int(scope["query_string"]))


@route
async def no_content(scope, receive, send):
    await answer(send, b"", status=204, headers=[(b"x-a", b"1"), (b"Content-length", b"0")])


@route
async def memory(scope, receive, send):
    held = []
    while True:
        held.append(bytearray(1000000))


@route
async def length(scope, receive, send):
    declared, pieces = scope["query_string"].split(b"=")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", declared)]})
    pieces = pieces.split(b",")
    for number, piece in enumerate(pieces, 1):
        await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})


@route
async def context(scope, receive, send):
    """A current task, and context variables of the request alone, before and after a wait."""
    found = [variable.get()]
    variable.set("set")
    task = asyncio.current_task()
    await asyncio.sleep(0)
    found += [variable.get(), str(task is asyncio.current_task() and task is not None)]
    await answer(send, ",".join(found).encode())


@route
async def context_at_once(scope, receive, send):
    found = [variable.get(), str(asyncio.current_task() is not None)]
    variable.set("set")
    await answer(send, ",".join(found).encode())


@route
async def timeout(scope, receive, send):
    try:
        await asyncio.wait_for(receive_all(receive), 0.01)
    except asyncio.TimeoutError:
        pass
    await answer(send, b"timed out")


async def receive_all(receive):
    while True:
        await receive()


@route
async def meet(scope, receive, send):
    """Ends only when 100 requests are under way at once."""
    global gate, waiting
    gate = gate or asyncio.Event()
    waiting += 1
    if waiting == 100:
        gate.set()
    await gate.wait()
    await answer(send, b"met")


@route
async def slow(scope, receive, send):
    print("slow begins")
    await asyncio.sleep(0.2)
    await answer(send, b"finished")


@route
async def change_scope(scope, receive, send):
    found = [len(scope["headers"]), dict(scope["state"]), scope["asgi"]["version"]]
    scope["headers"].append((b"x", b"y"))
    scope["state"]["mine"] = 1
    scope["asgi"]["version"] = "x"
    await answer(send, json.dumps(found).encode())


@route
async def fork(scope, receive, send):
    """A child of multiprocessing, which is ended by SIGTERM; and one that outlives the request."""
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join()
    if not os.fork():
        time.sleep(2)
        os._exit(0)
    await answer(send, str(process.exitcode).encode(), headers=[(b"content-length", b"5")])
