"""Which process has connected to the socket of a worker process: Larder alone may.

Scripts of one server have one user, and find the sockets of each other's processes.
"""

import os
import socket
import struct
import sys
from typing import Any, Dict, NamedTuple, Optional

_TOLD_MAX = 8
_PEER = struct.Struct("3i")
"""Of unix(7): process, user, group."""


class Server(NamedTuple):
    """The server, as its processes see it."""

    pid: int
    """0 where it has no number here, because this process is in a name space of its own."""


def server_of(said: Optional[Dict[str, Any]]) -> Optional[Server]:
    """Return the server by what it said of itself: its number, and the name space in which it has that number."""
    if said is None or not hasattr(socket, "SO_PEERCRED"):
        return None
    pid, space = int(said["pid"]), said.get("pid_space")
    return Server(pid if space is None or space == own_space() else 0)


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
    if pid == server.pid:
        return True
    if _Told.many < _TOLD_MAX:
        _Told.many += 1
        print(f"larder: a connection of process {pid} is closed: only Larder connects here", file=sys.stderr, flush=True)
    return False
