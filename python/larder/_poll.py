"""One object on which several threads wait for sockets: epoll, or something like it elsewhere."""

import os
import select
import selectors
import threading
from typing import Any, Dict, List, Set, Tuple

READABLE: int = getattr(select, "EPOLLIN", 1)
WRITABLE: int = getattr(select, "EPOLLOUT", 4)
PEER_CLOSED: int = getattr(select, "EPOLLRDHUP", 1 << 13)
"""The peer closed its side. Not reported where there is no epoll."""
EDGE: int = getattr(select, "EPOLLET", 1 << 31)
"""Each arrival of bytes is reported once, in their order over all sockets. Levels are reported where there is no epoll."""
ONESHOT: int = getattr(select, "EPOLLONESHOT", 1 << 30)
"""After an event nothing is reported until `modify`, so that one thread alone has the socket."""
EXCLUSIVE: int = getattr(select, "EPOLLEXCLUSIVE", 1 << 28)
"""Of the processes that wait for the same socket, not all are woken."""


def new_poll() -> Any:
    """Return a `select.epoll`, or a `SelectorPoll` where there is none."""
    return select.epoll() if hasattr(select, "epoll") else SelectorPoll()


def wait_readable(fd: int, seconds: float) -> bool:
    return _wait(fd, select.POLLIN, seconds)


def wait_writable(fd: int, seconds: float) -> bool:
    return _wait(fd, select.POLLOUT, seconds)


def _wait(fd: int, event: int, seconds: float) -> bool:
    # Unlike select(2), poll(2) knows no highest descriptor.
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(seconds * 1000))


class SelectorPoll:
    """What this package uses of epoll, made of a selector.

    One thread at a time waits in the selector, the others for their turn; changes are queued, and a pipe
    wakes the waiting thread up to apply them.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._masks: Dict[int, int] = {}
        self._changed: Set[int] = set()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)

    def fileno(self) -> int:
        return self._wake_write

    def register(self, fd: int, mask: int) -> None:
        with self._lock:
            self._masks[fd] = mask
            self._changed.add(fd)
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass

    modify = register

    def unregister(self, fd: int) -> None:
        with self._lock:
            self._masks.pop(fd, None)
            self._changed.discard(fd)
            self._forget(fd)

    def poll(self, timeout: float, maxevents: int) -> List[Tuple[int, int]]:
        wait = None if timeout < 0 else timeout
        while True:
            with self._turn:
                self._apply_changes()
                events = self._take(self._selector.select(wait), maxevents)
            if events or wait is not None:
                return events

    def _apply_changes(self) -> None:
        with self._lock:
            for fd in self._changed:
                self._forget(fd)
                self._selector.register(fd, _events_of(self._masks[fd]))
            self._changed.clear()

    def _take(self, ready: List[Tuple[selectors.SelectorKey, int]], maxevents: int) -> List[Tuple[int, int]]:
        events: List[Tuple[int, int]] = []
        with self._lock:
            for key, _ in ready:
                if key.fd == self._wake_read:
                    os.read(self._wake_read, 4096)
                    continue
                mask = self._masks.get(key.fd)
                if mask is None or len(events) >= maxevents:
                    continue
                if mask & ONESHOT:
                    self._forget(key.fd)
                events.append((key.fd, mask & (READABLE | WRITABLE)))
        return events

    def _forget(self, fd: int) -> None:
        try:
            self._selector.unregister(fd)
        except (KeyError, ValueError):
            pass


def _events_of(mask: int) -> int:
    return (selectors.EVENT_READ if mask & READABLE else 0) | (selectors.EVENT_WRITE if mask & WRITABLE else 0)
