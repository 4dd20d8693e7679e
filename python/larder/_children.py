"""A bound of the processes that a process starts: each fork waits until a keeper permits it.

The keeper is a process of its own, made before the application is imported. A filter of system calls sends it each fork of the
process and of all that it starts (seccomp_unotify(2)), and the kernel lets the caller sleep until the keeper has answered. Threads
pass. A fork beyond the bound gets no answer while so many processes live: whoever multiplies sleeps, and Larder, which counts too,
ends all of them. Without its keeper nobody below the process can fork any more.
"""

import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
from time import monotonic
from typing import Any, Callable, List, NamedTuple, NoReturn, Optional, Set, Tuple

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_SECCOMP_SET_MODE_FILTER = 1
_NEW_LISTENER = 1 << 3
_WAIT_KILLABLE = 1 << 5
"""No signal but a deadly one breaks off a fork that the keeper looks at; from Linux 5.19 on."""
_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_CONTINUE = 1
_NOTICE = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")

_ALLOW = 0x7FFF0000
_ASK = 0x7FC00000
_UNKNOWN = 0x00050000 | errno.ENOSYS
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x00010000
_CLONE3 = 435
"""Its flags lie in memory, where no filter sees them. Without it libraries use clone(2)."""
_UNAWAITED_MAX = 1024
"""Processes that ended and that their parents have not waited for: they count as living beyond this."""
_LOOK_SECONDS = 0.02
"""How often forks beyond the bound are looked at again."""
_AT_ONCE_MAX = 16
"""Processes beyond these begin one after the other: whoever multiplies takes no more than a part of a core from others."""
_PAUSE_SECONDS = 0.005


class _Calls(NamedTuple):
    """Numbers of system calls of an architecture, and how the kernel names it and its elder brother of 32 bits."""

    architecture: int
    elder: int
    seccomp: int
    clone: int
    forks: Tuple[int, ...]


_CALLS = {
    "x86_64": _Calls(0xC000003E, 0x40000003, 317, 56, (57, 58)),
    "aarch64": _Calls(0xC00000B7, 0x40000028, 277, 220, ()),
}
_ELDER_CLONE, _ELDER_FORKS = 120, (2, 190)
"""The same on 32-bit x86 and ARM."""


class NoKeeper(Exception):
    """The system lacks something. The message says what."""


def bound(children_max: int, ctypes: Any) -> None:
    """Start a keeper that lets this process have so many descendants, and one more by which Larder sees that it is too many.

    To be called while there is one thread, and after `no_new_privs` was set. Raise `NoKeeper` where that is not possible.
    """
    calls = _CALLS.get(platform.machine()) if sys.byteorder == "little" and sys.maxsize > 2**32 else None
    if calls is None:
        raise NoKeeper(f"unknown architecture {platform.machine()}")
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children"):
            pass
    except OSError as error:
        raise NoKeeper(f"the system does not tell the children of a process: {error}") from None
    ours, its = socket.socketpair()
    with ours, its:
        keeper = _clone(ctypes, calls)
        if keeper == 0:
            ours.close()
            _keep(ctypes, own, its.detach(), children_max)
        try:
            listener = _filter(ctypes, calls)
        except OSError as error:
            # It ends when it gets no listener.
            raise NoKeeper(f"seccomp: {error.strerror}") from None
        try:
            socket.send_fds(ours, [b"l"], [listener])
        finally:
            # With it the application would answer its own forks.
            os.close(listener)


def _clone(ctypes: Any, calls: _Calls) -> int:
    """Fork without a signal at the end of the child, so that an application that waits for its children does not meet this one.

    The C library of the child keeps the number of its parent, which matters to nothing that the keeper calls.
    """
    try:
        python = ctypes.pythonapi
        python.PyOS_BeforeFork()
    except AttributeError:
        raise NoKeeper("another Python than CPython") from None
    pid: int = _syscall(ctypes)(ctypes.c_long(calls.clone), *[ctypes.c_long(0)] * 5)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise NoKeeper(f"clone: {os.strerror(ctypes.get_errno())}")
    return pid


def _syscall(ctypes: Any) -> Callable[..., int]:
    # Not by `CDLL`, which gives the lock of the interpreter away: a child would have no owner of it.
    call: Any = ctypes.PyDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call  # type: ignore[no-any-return]


def _filter(ctypes: Any, calls: _Calls) -> int:
    """Put the filter in force, and return the descriptor by which forks are answered."""
    program = b"".join(struct.pack("=HBBI", *step) for step in _steps(calls))
    steps = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):  # type: ignore[misc]
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]

    described = Program(len(program) // 8, ctypes.cast(steps, ctypes.c_void_p))
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        arguments = (ctypes.c_ulong(_SECCOMP_SET_MODE_FILTER), ctypes.c_ulong(flags), ctypes.byref(described))
        listener: int = _syscall(ctypes)(ctypes.c_long(calls.seccomp), *arguments)
        if listener >= 0:
            return listener
        if ctypes.get_errno() != errno.EINVAL:
            break
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _steps(calls: _Calls) -> List[Tuple[int, int, int, int]]:
    """Return the filter (bpf, Linux's seccomp_data): what asks is a fork in each of the ways that there are."""
    load, equal, at_least, any_bit, leave = 0x20, 0x15, 0x35, 0x45, 0x06

    def of_one(clone: int, forks: Tuple[int, ...]) -> List[Tuple[int, int, int, int]]:
        # Behind the comparisons: allow, ask, no such call, and for clone(2) a look at its flags.
        count = len(forks)
        steps = [(equal, count + 4, 0, clone), (equal, count + 2, 0, _CLONE3)]
        steps += [(equal, count - at, 0, fork) for at, fork in enumerate(forks)]
        tail = [(leave, 0, 0, _ALLOW), (leave, 0, 0, _ASK), (leave, 0, 0, _UNKNOWN)]
        # No filter can jump back, so that the last two stand here once more.
        return [*steps, *tail, (load, 0, 0, 16), (any_bit, 0, 1, _CLONE_THREAD), (leave, 0, 0, _ALLOW), (leave, 0, 0, _ASK)]

    own, elder = of_one(calls.clone, calls.forks), of_one(_ELDER_CLONE, _ELDER_FORKS)
    return [
        (load, 0, 0, 4),
        (equal, 0, len(own) + 3, calls.architecture),
        (load, 0, 0, 0),
        # Calls of x32, where the kernel has them: no program of a distribution makes one.
        (at_least, 0, 1, _X32_BIT),
        (leave, 0, 0, _UNKNOWN),
        *own,
        (equal, 1, 0, calls.elder),
        (leave, 0, 0, _UNKNOWN),
        (load, 0, 0, 0),
        *elder,
    ]


def _keep(ctypes: Any, process: int, channel: int, children_max: int) -> NoReturn:
    """Be the keeper of a process until it ends."""
    try:
        prctl = ctypes.CDLL(None).prctl
        prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # Whoever could look into this process could take the listener out of it.
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        if os.getppid() == process:
            # The application's signals to its own group.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, signal.SIG_IGN)
            # The log, the channel of reports and the listener end with the process, not with this one.
            null = os.open(os.devnull, os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)
            with socket.socket(fileno=channel) as received:
                _, listeners, _, _ = socket.recv_fds(received, 1, 1)
            if listeners:
                os.closerange(3, listeners[0])
                os.closerange(listeners[0] + 1, 1 << 20)
                Keeper(listeners[0], process, children_max).run()
    finally:
        os._exit(0)


class Keeper:
    """Answers the forks below one process."""

    def __init__(self, listener: int, process: int, children_max: int) -> None:
        self._listener = listener
        self._process = process
        self._max = children_max
        self._waiting: List[int] = []
        """Forks that are not permitted yet, in their order."""
        self._at_most = children_max + 1
        """Processes that there were at the last look, and those that were permitted since."""
        self._look_beyond = 0
        """Where more may live than this, the next look is due: a look costs as much as some forks."""
        self._next_at = 0.0
        """When the next one beyond `_AT_ONCE_MAX` may begin."""

    def run(self) -> None:
        """Answer until nobody is left who could fork."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        wait = None
        while True:
            events = poll.poll(wait)
            if any(event & (select.POLLHUP | select.POLLERR) for _, event in events):
                return
            if events:
                self._receive()
            wait = self._permit()

    def _receive(self) -> None:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, notice)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                # The caller was killed meanwhile.
                return
            raise
        self._waiting.append(_NOTICE.unpack(notice)[0])

    def _permit(self) -> Optional[float]:
        """Permit the forks that may begin. Return the milliseconds after which those that wait are to be looked at again."""
        while self._waiting:
            if self._at_most > min(self._max, self._look_beyond):
                self._at_most = self._count()
                self._look_beyond = max(self._at_most + _AT_ONCE_MAX // 2, _AT_ONCE_MAX)
            if self._at_most > self._max:
                return _LOOK_SECONDS * 1000
            now = monotonic()
            if self._at_most > _AT_ONCE_MAX and now < self._next_at:
                return (self._next_at - now) * 1000
            self._next_at = now + _PAUSE_SECONDS
            answer = bytearray(_ANSWER.pack(self._waiting.pop(0), 0, 0, _CONTINUE))
            try:
                fcntl.ioctl(self._listener, _SEND, answer)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                continue
            self._at_most += 1
        return None

    def _count(self) -> int:
        """Return how many processes live below the one that is kept, without this one; one more than may where it is more."""
        seen: Set[int] = {os.getpid()}
        living = 0
        to_look_at = [self._process]
        while to_look_at and living <= self._max:
            for child in _children_of(to_look_at.pop()):
                if child in seen:
                    continue
                seen.add(child)
                if _lives(child):
                    living += 1
                    to_look_at.append(child)
        # Those that ended and that nobody waits for hold a number each.
        return self._max + 1 if len(seen) - living > _UNAWAITED_MAX else living


def _children_of(pid: int) -> List[int]:
    children: List[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return children
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                children += map(int, file.read().split())
        except (OSError, ValueError):
            continue
    return children


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # Behind the name of the program, which stands in parentheses and may have any letters.
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False
