"""Which process has connected to the socket of a worker process: Larder alone may.

Scripts of one server have one user, and find the sockets of each other's processes.
"""

import os
import socket
import struct
import sys
from typing import Any, Dict, NamedTuple, Optional, Tuple

_TOLD_MAX = 8
_PEER = struct.Struct("3i")
"""Of unix(7): process, user, group."""


class Server(NamedTuple):
    """The server, as its processes see it."""

    pids: Tuple[int, ...]
    """Its number as this process may see it: 0 where it has none here, because this process is in a name space of its own."""


def server_of(said: Optional[Dict[str, Any]]) -> Optional[Server]:
    """Return the server by what it said of itself: its number, and the name space in which it has that number."""
    if said is None or not hasattr(socket, "SO_PEERCRED"):
        return None
    pid, space, own = int(said["pid"]), said.get("pid_space"), own_space()
    if space is None or space == own:
        return Server((pid,))
    if own is None:
        # A program around the interpreter hides `/proc`: this process may be in the server's name space or in one of its own. No other
        # script of the server has either number: in a common name space each process has one of its own, and none has 0. In one of its
        # own all that is outside has 0, as it always has there, and the server's number can only be that of a process of this script.
        return Server((pid, 0))
    return Server((0,))


def own_space() -> Optional[str]:
    """Return the name space of process numbers; `None` where the system does not tell."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


class _Told:
    """How often the log was told: somebody who goes on connecting does not fill it."""

    many = 0


def is_of(server: Optional[Server], sock: Any) -> bool:
    """Whether a connection is one of the server's. The system notes who connects, and nobody else can say it."""
    if server is None:
        return True
    try:
        pid, _, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    except OSError:
        return False
    if pid in server.pids:
        return True
    if _Told.many < _TOLD_MAX:
        _Told.many += 1
        print(f"larder: a connection of process {pid} is closed: only Larder connects here", file=sys.stderr, flush=True)
    return False
