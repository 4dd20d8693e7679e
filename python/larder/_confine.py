"""Bounds of a worker process, set before the application is imported: they hold for all that it starts, and nothing lifts them.

Each of them is one that the system may lack: then that is said, and the process goes on without it.
"""

import errno
import os
import platform
import signal
import struct
import sys
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from . import _children

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

# landlock(7); the numbers of system calls are the same on all architectures.
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_VERSION = 1
_LANDLOCK_PATH_BENEATH = 1
_WRITE_FILE = 1 << 1
# Removing and making files and folders of all kinds.
_MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
# Moving files from one folder to another, from version 2 on. Before that no ruleset can permit it.
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_TCP = 0b11
_SCOPE_SIGNAL = 1 << 1
_LANDLOCK_MIN = 2
_LANDLOCK_TRUNCATE = 3
_LANDLOCK_TCP = 4
_LANDLOCK_SCOPES = 6

# seccomp(2): architecture as the kernel names it, and the number of socket(2).
_SOCKET_OF = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
# io_uring opens sockets past any filter.
_IO_URING_SETUP = 425
_X32_BIT = 0x40000000
_AF_UNIX = 1
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EACCES

_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/dev/pts")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")


class Bounds(NamedTuple):
    """What is to be bounded."""

    folder: str
    memory_bytes: Optional[int]
    write: Sequence[str]
    """Further folders below which the process may write; `/` lifts the limit."""
    network: bool
    children_max: Optional[int] = None
    """The processes that it may have started at once, where nothing else bounds them."""


class Confinement(NamedTuple):
    """What is in force, and what the system lacks, for people."""

    holds: List[str]
    lacks: List[str]


def confine(bounds: Bounds) -> Confinement:
    """Tie the process to Larder and bound what it may do, as far as the system can."""
    confinement = Confinement([], [])
    _limit_resources(bounds.memory_bytes, confinement)
    _yield_to_workers()
    if not sys.platform.startswith("linux"):
        confinement.lacks.append("all bounds but those of memory: they need Linux")
        return confinement
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        prctl = libc.prctl
        prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    except (ImportError, OSError, AttributeError) as error:
        confinement.lacks.append(f"all bounds but those of memory: {error}")
        return confinement
    _tie_to_parent(prctl, confinement)
    # Before Landlock, so that the process can't send signals to its keeper.
    _bound_children(ctypes, bounds.children_max, confinement)
    _restrict_files(_Landlock(ctypes), bounds, confinement)
    if not bounds.network:
        _forbid_network(ctypes, prctl, confinement)
    return confinement


def _limit_resources(memory_bytes: Optional[int], confinement: Confinement) -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory_bytes:
            resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
            confinement.holds.append(f"memory {memory_bytes} bytes (each process)")
    except (ImportError, OSError, ValueError) as error:
        confinement.lacks.append(f"limits of resources: {error}")


def _yield_to_workers() -> None:
    """Let this process wait until a worker of Larder on the same core sleeps, in place of interrupting it at each request.

    Its share of the processor stays the same (`SCHED_BATCH` of sched(7)).
    """
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):
        pass


def _tie_to_parent(prctl: Callable[..., int], confinement: Confinement) -> None:
    parent = os.getppid()
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Children whose parent ends stay below this process, so that Larder finds them when it ends the process.
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        confinement.holds.append("no_new_privs")
    if os.getppid() != parent:
        os._exit(0)


def _bound_children(ctypes: Any, children_max: Optional[int], confinement: Confinement) -> None:
    if children_max is None:
        return
    try:
        _children.bound(children_max, ctypes)
    except (_children.NoKeeper, OSError) as error:
        confinement.lacks.append(f"a bound of children before they begin: {error}")
    else:
        confinement.holds.append(f"a process beyond {children_max} children does not begin")


class _Landlock:
    """The system calls of landlock(7)."""

    def __init__(self, ctypes: Any) -> None:
        self._ctypes = ctypes
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long

    def version(self) -> int:
        """Return the version of the kernel's interface; 0 where there is none."""
        c = self._ctypes
        version: int = self._syscall(
            c.c_long(_LANDLOCK_CREATE_RULESET), None, c.c_size_t(0), c.c_uint32(_LANDLOCK_VERSION)
        )
        return max(0, version)

    def ruleset(self, files: int, net: int, scoped: int) -> int:
        attributes = struct.pack("=QQQ", files, net, scoped)
        c = self._ctypes
        return self._call(_LANDLOCK_CREATE_RULESET, attributes, c.c_size_t(len(attributes)), c.c_uint32(0))

    def allow_below(self, ruleset: int, path: str, files: int) -> None:
        """Allow accesses below a folder, or to a file. One that does not exist is passed over."""
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        try:
            rule = struct.pack("=Qi", files, fd)
            c = self._ctypes
            self._call(_LANDLOCK_ADD_RULE, c.c_int(ruleset), c.c_int(_LANDLOCK_PATH_BENEATH), rule, c.c_uint32(0))
        finally:
            os.close(fd)

    def enforce(self, ruleset: int) -> None:
        c = self._ctypes
        self._call(_LANDLOCK_RESTRICT_SELF, c.c_int(ruleset), c.c_uint32(0))

    def _call(self, number: int, *arguments: Any) -> int:
        c = self._ctypes
        result: int = self._syscall(c.c_long(number), *arguments)
        if result < 0:
            error = c.get_errno()
            raise OSError(error, os.strerror(error))
        return result


def _restrict_files(landlock: _Landlock, bounds: Bounds, confinement: Confinement) -> None:
    """Let the process write in few places, and send signals to its own children alone."""
    version = landlock.version()
    if version < _LANDLOCK_MIN:
        confinement.lacks.append("limits of writing: they need Linux 5.19 or newer with Landlock")
        return
    is_open = "/" in bounds.write
    files = 0 if is_open else _WRITE_FILE | _MAKE_AND_REMOVE | _REFER
    file_alone = _WRITE_FILE
    if version >= _LANDLOCK_TRUNCATE and not is_open:
        files |= _TRUNCATE
        file_alone |= _TRUNCATE
    net = _TCP if not bounds.network and version >= _LANDLOCK_TCP else 0
    scoped = _SCOPE_SIGNAL if version >= _LANDLOCK_SCOPES else 0
    if not files | net | scoped:
        return
    ruleset = -1
    try:
        ruleset = landlock.ruleset(files, net, scoped)
        if not is_open:
            for path in (bounds.folder, os.environ.get("TMPDIR") or "/tmp", *_TEMPORARY, *bounds.write):
                landlock.allow_below(ruleset, path, files if os.path.isdir(path) else file_alone)
            for path in _DEVICES:
                landlock.allow_below(ruleset, path, file_alone)
        landlock.enforce(ruleset)
    except OSError as error:
        confinement.lacks.append(f"limits of writing: {error}")
        return
    finally:
        if ruleset >= 0:
            os.close(ruleset)
    if not is_open:
        further = "".join(f", {path}" for path in bounds.write)
        confinement.holds.append(f"writes below {bounds.folder} and folders for temporary files{further}")
    if scoped:
        confinement.holds.append("signals to its own children alone")
    if net:
        confinement.holds.append("no TCP")


def _forbid_network(ctypes: Any, prctl: Callable[..., int], confinement: Confinement) -> None:
    """Refuse sockets of all families but AF_UNIX, by a filter of system calls."""
    known = _SOCKET_OF.get(platform.machine()) if sys.byteorder == "little" and sys.maxsize > 2**32 else None
    if known is None:
        confinement.lacks.append(f"`network = false` beyond TCP: unknown architecture {platform.machine()}")
        return
    program = b"".join(struct.pack("=HBBI", *step) for step in _sockets_filter(*known))
    steps = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):  # type: ignore[misc]
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]

    described = Program(len(program) // 8, ctypes.cast(steps, ctypes.c_void_p))
    if prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(described), 0, 0) == 0:
        confinement.holds.append("no sockets but Unix sockets")
    else:
        confinement.lacks.append(f"`network = false` beyond TCP: {os.strerror(ctypes.get_errno())}")


def _sockets_filter(architecture: int, socket: int) -> List[Tuple[int, int, int, int]]:
    load, equal, at_least, leave = 0x20, 0x15, 0x35, 0x06
    return [
        (load, 0, 0, 4),
        (equal, 1, 0, architecture),
        (leave, 0, 0, _REFUSE),
        (load, 0, 0, 0),
        (at_least, 4, 0, _X32_BIT),
        (equal, 3, 0, _IO_URING_SETUP),
        (equal, 0, 3, socket),
        (load, 0, 0, 16),
        (equal, 1, 0, _AF_UNIX),
        (leave, 0, 0, _REFUSE),
        (leave, 0, 0, _ALLOW),
    ]
