"""Calls of hooks: frames from Larder, and the frames that reply to them. No socket here.

A frame has a header of 12 bytes, little-endian: u32 length of the payload, u32 id, u16 times, u8 kind, u8 zero.
The payload of a call is a `marshal` of a tuple, and has no times. That of a reply begins with so many times as its header says,
a u64 each: the nanoseconds that the hooks of the call took which ran, in their order. The rest is JSON. What requests of one client
have in common, and the fields of an answer, stand in a call as bytes, which are a `marshal` themselves: they are read once for all
calls that have the same.
"""

import marshal
import struct
import sys
from itertools import chain
from json.encoder import encode_basestring_ascii as quoted
from time import monotonic, perf_counter_ns
from types import CoroutineType
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _answers, _decisions, _messages
from ._definitions import Hook
from ._messages import NO_FIELDS, FetchedResponse, Request, RequestFacts
from ._views import AmbiguousCookie, FieldList, Pairs, field_list

PAYLOAD_BYTES_MAX = 1 << 20
HEADER = struct.Struct("<IIHBB")
_HEADER_WITH_ONE_TIME = struct.Struct("<IIHBBQ")
TIME_BYTES = 8
CALL = 1
UNCHANGED = 2
CHANGED = 3
FAILED = 4
RUNNING_BYTES = 16
"""The memory in which a process notes the call that it runs, little-endian: u64 when it began (nanoseconds of the monotonic clock),
u32 its id, u16 the hook that runs, u16 zero. All is zero while none runs. `pack_into` writes zeros first and the id late, so that no
reader finds an id beside the time of another call."""
_note_running = struct.Struct("<QIHH").pack_into
_HOOK_OF_NOTE = struct.Struct("<H")
_NOTHING_RUNS = bytes(RUNNING_BYTES)

Report = Callable[[str, str, str, BaseException], str]
"""Tell Larder of an exception: request name, method, target. Returns the traceback."""

_REQUEST_TYPES = (str, str, str, int, str, tuple)
_FOUND_TYPES = (int, int, int, tuple)
_TUPLES_OF_CALLS = (b"(\x08\0\0\0", b")\x08", b"(\x09\0\0\0", b")\x09")
"""How a marshal of a tuple of 8 members, or of 9 at the stage `found`, begins: with its size in four bytes, or in one."""
_TUPLES_OF_FACTS = (b"(\x06\0\0\0", b")\x06")
_TUPLE, _TWO, _STR = {tuple}, {2}, {str}
_MEMO_MAX = 1024
_FACTS_MAX = 256
_FACTS_BYTES_MAX = 4096
"""Longer facts are read anew for each call."""
_BATCH_SECONDS = 0.001
"""After this time replies are sent though more calls are there."""
_TRACEBACK_LENGTH_MAX = 16 * 1024
_EXCEPTION_LENGTH_MAX = 64


class BrokenFrame(Exception):
    """Larder sent what is no call. The connection can't be used any more."""


class WrongReturn(Exception):
    """A hook returned something that stands for no decision. Its argument is the exception that says why."""


class Calls:
    """Runs the hooks of calls."""

    def __init__(self, hooks: Sequence[Hook], report: Report, running: Any = None) -> None:
        self._running: Any = bytearray(RUNNING_BYTES) if running is None else running
        """Memory that Larder reads, to tell a call that hangs from those that wait behind it."""
        self._hooks = hooks
        self._report = report
        self._plans: Dict[Tuple[str, Tuple[int, ...]], List[Tuple[int, Callable[..., Any], str]]] = {}
        """The hooks of a stage by their indexes: index, function, file."""
        self._read_lists: Dict[Tuple[str, ...], str] = {}
        self._pages: Dict[Tuple[int, str], Tuple[str, str]] = {}
        """What short texts become which pages return, by their hooks: the response, and all of the reply where there is nothing else in it."""
        self._facts: Dict[bytes, RequestFacts] = {}
        self._fields: Dict[bytes, FieldList] = {}
        self._loop: Any = None

    def reply(self, id: int, payload: bytes) -> bytes:
        """Run the hooks of a call, and return the frame that replies to it."""
        call = _parse(payload)
        times: List[int] = []
        kind, text = self._run(id, call, times)
        data = text.encode("ascii")
        many = len(times)
        if len(data) + many * TIME_BYTES > PAYLOAD_BYTES_MAX:
            kind, data = self._too_long(call, len(data))
        if many == 1:
            return _HEADER_WITH_ONE_TIME.pack(len(data) + TIME_BYTES, id, 1, kind, 0, times[0]) + data
        return HEADER.pack(len(data) + many * TIME_BYTES, id, many, kind, 0) + struct.pack(f"<{many}Q", *times) + data

    def running_hook(self) -> int:
        """Return the index of the hook that runs, or that ran last."""
        index: int = _HOOK_OF_NOTE.unpack_from(self._running, 12)[0]
        return index

    def rest(self) -> None:
        """Note that no call runs."""
        self._running[:] = _NOTHING_RUNS

    def close(self) -> None:
        """End what `async` hooks left behind."""
        if self._loop is not None:
            import asyncio

            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    def _run(self, id: int, call: Tuple[Any, ...], times: List[int]) -> Tuple[int, str]:
        """Run the hooks of a call. Return what they decided, and append how long each of them took to `times`."""
        stage, hooks, name, path, query, facts, status, fields = call[:8]
        try:
            plan = self._plans[stage, hooks]
        except (KeyError, TypeError):
            plan = self._plan(stage, hooks)
        known = self._facts.get(facts)
        if known is None:
            known = self._read_facts(facts)
        response: Any = None
        if stage == "request" or stage == "page":
            if fields:
                raise BrokenFrame("a call before there is an answer has fields of one")
            request = Request(stage, (name, path, query), known)
        else:
            known_fields = self._fields.get(fields)
            if known_fields is None:
                known_fields = self._read_fields(fields)
            request = Request(stage, (name, path, query), known, status, known_fields)
            if stage == "fetched":
                response = request._response = FetchedResponse(request)
            elif stage == "respond":
                response = request._response = _answers.Answer(request)
            elif stage == "found":
                response = _answers.Found(request, call[8])
        index, call_begun, running = -1, 0, self._running
        try:
            for index, function, file in plan:
                request._running = index
                request._file = file
                begun = perf_counter_ns()
                call_begun = call_begun or begun
                _note_running(running, 0, call_begun, id, index, 0)
                try:
                    value = function(request) if response is None else function(request, response)
                    if value is not None and isinstance(value, CoroutineType):
                        value = self._finish(value)
                finally:
                    times.append(perf_counter_ns() - begun)
                if value is not None:
                    return CHANGED, self._decided(request, index, value)
            changes = _messages.changes_of(request)
            if changes:
                return CHANGED, self._changed(request, changes)
            return UNCHANGED, f"{{{self._reads(request)}}}" if request._reads else ""
        except AmbiguousCookie as error:
            return FAILED, f'{{"hook":{index},"line":{self._hooks[index].line},"ambiguous":{quoted(str(error.args[0]))}}}'
        except BaseException as error:  # SystemExit and KeyboardInterrupt end the call alone
            return FAILED, self._failed(call, index, error)
        finally:
            # The views refer to the request: without this each call would leave work to the garbage collector.
            request._headers = request._query_view = request._key = request._response = None

    def _read_facts(self, data: bytes) -> RequestFacts:
        """Read the facts that requests of one client have in common."""
        # Else marshal would take memory for as many members as four arbitrary bytes say.
        facts = _loads(data) if data.startswith(_TUPLES_OF_FACTS) else None
        if type(facts) is not tuple or tuple(map(type, facts)) != _REQUEST_TYPES:
            raise BrokenFrame("the facts of a request are no method, scheme, host, port, client and fields")
        read: RequestFacts = (*facts[:5], _read_pairs(facts[5]))
        if len(data) <= _FACTS_BYTES_MAX:
            if len(self._facts) >= _FACTS_MAX:
                self._facts.clear()
            self._facts[data] = read
        return read

    def _read_fields(self, data: bytes) -> FieldList:
        """Read the fields of an answer. No bytes are no fields."""
        if not data:
            return NO_FIELDS
        fields = _read_pairs(_loads(data) if data[:1] in (b"(", b")") else None)
        if len(data) <= _FACTS_BYTES_MAX:
            if len(self._fields) >= _FACTS_MAX:
                self._fields.clear()
            self._fields[data] = fields
        return fields

    def _plan(self, stage: str, indexes: Tuple[int, ...]) -> List[Tuple[int, Callable[..., Any], str]]:
        plan = []
        for index in indexes:
            if type(index) is not int or not 0 <= index < len(self._hooks) or not self._hooks[index].is_of(stage):
                raise BrokenFrame(f"there is no hook {index!r} of the stage {stage!r}")
            hook = self._hooks[index]
            plan.append((index, hook.function, hook.file))
        if not plan:
            raise BrokenFrame("a call without hooks")
        if len(self._plans) >= _MEMO_MAX:
            self._plans.clear()
        self._plans[stage, indexes] = plan
        return plan

    def _decided(self, request: Request, index: int, value: Any) -> str:
        known = self._pages.get((index, value)) if type(value) is str else None
        if known is not None:
            changes = _messages.changes_of(request)
            if not changes and not request._reads:
                return known[1]
            request._decided_by, request._line = index, self._hooks[index].line
            return self._changed(request, [*changes, known[0]])
        hook = self._hooks[index]
        try:
            decision = _decisions.take(hook.stage, value)
        except (TypeError, ValueError) as error:
            raise WrongReturn(error) from None
        if type(value) is str and len(value) <= _FACTS_BYTES_MAX:
            if len(self._pages) >= _FACTS_MAX:
                self._pages.clear()
            self._pages[index, value] = decision._json, f'{{"hook":{index},"line":{hook.line},{decision._json}}}'
        request._decided_by = index
        request._line = decision._frame_line if decision._frame_file == hook.file else hook.line
        return self._changed(request, [*_messages.changes_of(request), decision._json])

    def _changed(self, request: Request, members: List[str]) -> str:
        index = request._decided_by
        line = request._line or self._hooks[index].line
        reads = f"{self._reads(request)}," if request._reads else ""
        return f'{{"hook":{index},"line":{line},{reads}{",".join(members)}}}'

    def _reads(self, request: Request) -> str:
        """Return the member that tells what was read."""
        reads = tuple(request._reads)
        found = self._read_lists.get(reads)
        if found is None:
            if len(self._read_lists) >= _MEMO_MAX:
                self._read_lists.clear()
            found = self._read_lists[reads] = f'"read":{_messages._list(reads)}'
        return found

    def _finish(self, coroutine: Any) -> Any:
        """Run an `async` hook to its end."""
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(coroutine)

    def _failed(self, call: Tuple[Any, ...], index: int, error: BaseException) -> str:
        hook = self._hooks[index]
        line = _line_in(hook.file, error)
        if isinstance(error, WrongReturn):
            # The hook has left the stack, so that the traceback does not name it.
            why = error.args[0]
            error = type(why)(f"{hook.file}:{hook.line}: {hook.name}: {why}")
        text = self._report(call[2], self._read_facts(call[5])[0], call[3], error)
        kind = type(error).__name__[:_EXCEPTION_LENGTH_MAX].encode("utf-8", "replace").decode("utf-8")
        # A lone surrogate has no encoding, and no place in JSON.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        if len(text) > _TRACEBACK_LENGTH_MAX:
            text = f"{text[: _TRACEBACK_LENGTH_MAX // 4]}\n…\n{text[-_TRACEBACK_LENGTH_MAX * 3 // 4 :]}"
        return f'{{"hook":{index},"line":{line},"exception":{quoted(kind)},"traceback":{quoted(text)}}}'

    def _too_long(self, call: Tuple[Any, ...], size: int) -> Tuple[int, bytes]:
        error = ValueError(
            f"the decision is of {size} bytes, and at most {PAYLOAD_BYTES_MAX} can be sent: shorten body or fields"
        )
        return FAILED, self._failed(call, call[1][-1], WrongReturn(error)).encode("ascii")


def _line_in(file: str, error: BaseException) -> int:
    """Return the line of a file at which an exception left it; 0 where it did not come through."""
    line, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == file:
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def _loads(data: bytes) -> Any:
    try:
        return marshal.loads(data)
    except (ValueError, EOFError, TypeError, MemoryError) as error:
        raise BrokenFrame(f"the payload of a call is no marshal: {error}") from None


def _parse(payload: bytes) -> Tuple[Any, ...]:
    # Else marshal would take memory for as many members as four arbitrary bytes say.
    if not payload.startswith(_TUPLES_OF_CALLS):
        raise BrokenFrame("the payload of a call is no tuple of stage, hooks and facts")
    call: Tuple[Any, ...] = _loads(payload)
    stage, hooks, name, path, query, facts, status, fields = call[:8]
    # One by one: a tuple of the types of all takes longer to make and to compare.
    if not (
        type(stage) is str
        and type(hooks) is tuple
        and type(name) is str
        and type(path) is str
        and (query is None or type(query) is str)
        and type(facts) is bytes
        and type(status) is int
        and type(fields) is bytes
    ):
        raise BrokenFrame("the payload of a call is no tuple of stage, hooks and facts")
    if len(call) == 8:
        if stage == "found":
            raise BrokenFrame("a call of the stage found has no facts of a stored response")
    elif type(call[8]) is not tuple:
        raise BrokenFrame("the payload of a call is no tuple of stage, hooks and facts")
    elif stage != "found":
        raise BrokenFrame("a call has the facts of a stored response at the stage found, and at no other")
    elif tuple(map(type, call[8])) != _FOUND_TYPES or not set(map(type, call[8][3])) <= _STR:
        raise BrokenFrame("the facts of a stored response are no age, ttl, staleness and tags")
    return call


def _read_pairs(fields: Any) -> FieldList:
    if type(fields) is not tuple or not _are_pairs(fields):
        raise BrokenFrame("the fields of a call are no pairs of texts")
    return field_list(fields)


def _are_pairs(fields: Tuple[Any, ...]) -> bool:
    return not fields or (
        set(map(type, fields)) == _TUPLE
        and set(map(len, fields)) == _TWO
        and set(map(type, chain.from_iterable(fields))) == _STR
    )


def packed(stage: str, hooks: Tuple[int, ...], facts: Tuple[Any, ...], found: Optional[Tuple[Any, ...]] = None) -> bytes:
    """Pack the facts of a call as Larder does: method, scheme, host, port, path, query, client, name, fields, status, fields of the answer."""
    method, scheme, host, port, path, query, client, name, fields, status, response_fields = facts
    of_request = marshal.dumps((method, scheme, host, port, client, fields), 2)
    of_answer = marshal.dumps(response_fields, 2) if status else b""
    call = (stage, hooks, name, path, query, of_request, status, of_answer)
    return marshal.dumps(call if found is None else (*call, found), 2)


def text_of_reply(data: bytes) -> bytes:
    """Return the JSON of a frame that replies, without its header and its times."""
    return data[HEADER.size + HEADER.unpack_from(data)[2] * TIME_BYTES :]


class Frames:
    """The bytes of one connection, cut into frames."""

    def __init__(self, calls: Calls) -> None:
        self._reply = calls.reply
        self._pieces: List[bytes] = []
        self._size = 0
        self._needed = 0

    def feed(self, data: bytes, send: Optional[Callable[[bytes], None]] = None) -> Tuple[bytes, bool]:
        """Run the calls that are complete. Return the frames that reply to them, and whether the connection is sound.

        Replies that would wait for slow hooks of later calls are given to `send` before.
        """
        if self._pieces:
            self._pieces.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return b"", True
            data = b"".join(self._pieces)
            self._pieces = []
        replies: List[bytes] = []
        begun = monotonic()
        at, end = 0, len(data)
        try:
            while end - at >= 12:
                length, id, zero, kind, zero2 = HEADER.unpack_from(data, at)
                if length > PAYLOAD_BYTES_MAX or kind != CALL or zero or zero2:
                    raise BrokenFrame(f"a frame of kind {kind} and {length} bytes")
                if end - at < 12 + length:
                    self._needed = 12 + length
                    break
                replies.append(self._reply(id, data[at + 12 : at + 12 + length]))
                at += 12 + length
                if at < end and monotonic() - begun > _BATCH_SECONDS and send is not None:
                    send(b"".join(replies))
                    replies.clear()
                    begun = monotonic()
            else:
                self._needed = 12
        except BrokenFrame as error:
            print(f"larder: a connection is closed: {error}", file=sys.stderr, flush=True)
            return b"".join(replies), False
        if at < end:
            self._pieces = [data[at:] if at else data]
            self._size = end - at
        return b"".join(replies), True
