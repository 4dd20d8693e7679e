"""Hooks: loading of their files, and the connections on which Larder calls them."""

import ast
import fcntl
import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import mmap
import os
import platform
import re
import signal
import socket
import sys
import threading
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import _definitions, _peers, _poll
from ._calls import RUNNING_BYTES, Calls, Frames
from ._definitions import Hook
from ._runtime import FILES_MAX, LINE_BYTES_MAX, Control, LoadFailed, Settings, encode_line, ready_message

HOOKS_MAX = 256
# They have to be in one line of the control channel, beside the facts of the process.
_DESCRIPTIONS_BYTES_MAX = LINE_BYTES_MAX - 2048
_ROUTES_MAX = 64
"""Further routes are looked up when they are asked for, as those whose names are made."""
_RECEIVE_BYTES = 64 * 1024
_EVENTS_MAX = 64
# Replies that nobody takes delay the end of the process for so long at most.
_UNSENT_SECONDS = 1.0
# fcntl(2); the module has not all of them in each version.
_ADD_SEALS, _SEAL_SEAL, _SEAL_FUTURE_WRITE = 1033, 1, 16


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Compiles a file each time: bytecode of a file that was changed twice in a second may be that of before."""

    def __init__(self, fullname: str, path: str, kept: Optional[bytes] = None) -> None:
        super().__init__(fullname, path)
        self._kept = kept

    def get_data(self, path: Any) -> bytes:
        """Return the file as it was kept, or as it is."""
        return self._kept if self._kept is not None and path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> Any:
        data = self.get_data(self.path)
        code = self.source_to_code(data, self.path)
        # Tracebacks show the lines that run, also after the file has changed. Without a time this entry is not looked up anew.
        linecache.cache[self.path] = (len(data), None, importlib.util.decode_source(data).splitlines(True), self.path)
        return code


class KeptFiles(importlib.abc.MetaPathFinder):
    """The files of hooks as an earlier process has loaded them. Modules that it had not loaded are found as ever."""

    def __init__(self, files: Dict[str, bytes]) -> None:
        self.files = files

    @classmethod
    def read(cls, folder: Optional[str]) -> "KeptFiles":
        """Read the files that Larder keeps in a folder. Without a folder there are none."""
        if folder is None:
            return cls({})
        with open(os.path.join(folder, "files.json"), encoding="utf-8") as file:
            paths = json.load(file)
        files: Dict[str, bytes] = {}
        for number, path in enumerate(paths):
            with open(os.path.join(folder, str(number)), "rb") as kept:
                files[path] = kept.read()
        return cls(files)

    def bytes_of(self, path: str) -> bytes:
        """Return a file as it was kept, or as it is."""
        if path in self.files:
            return self.files[path]
        with open(path, "rb") as file:
            return file.read()

    def arrange(self) -> None:
        """Find modules among these files before those on disk."""
        if self.files:
            sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        tail = fullname.rpartition(".")[2]
        for folder in sys.path if path is None else path:
            base = os.path.join(os.path.abspath(folder), tail)
            package = os.path.join(base, "__init__.py")
            for file in (package, f"{base}.py"):
                if file in self.files:
                    return importlib.util.spec_from_file_location(
                        fullname,
                        file,
                        loader=_SourceLoader(fullname, file, self.files[file]),
                        submodule_search_locations=[base] if file == package else None,
                    )
        return None


def load_files(names: Sequence[str], folder: str, kept: Optional[KeptFiles] = None) -> Tuple[List[Hook], List[str]]:
    """Import the files of hooks, and return the hooks and the paths. Raise `LoadFailed`, with the cause."""
    files = kept.files if kept is not None else {}
    paths = [os.path.abspath(os.path.join(folder, name.strip())) for name in names]
    for path in paths:
        if paths.count(path) > 1:
            raise LoadFailed(f"{path} is named twice: its hooks would run twice")
    with _definitions.collected() as hooks:
        for number, path in enumerate(paths):
            _load_file(path, name_of_module(number, path), files.get(path))
    _check_hooks(hooks, paths)
    return hooks, paths


def _load_file(path: str, module_name: str, kept: Optional[bytes]) -> None:
    """Import a file of hooks, as it was kept or as it is, so that they are registered."""
    file = os.path.basename(path)
    if kept is None and not os.path.isfile(path):
        raise LoadFailed(_missing_file_hint(path))
    loader = _SourceLoader(module_name, path, kept)
    spec = importlib.util.spec_from_loader(module_name, loader, origin=path)
    assert spec is not None
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        raise LoadFailed(_import_hint(file, error)) from error


def name_of_module(number: int, path: str) -> str:
    """Return the name by which the module of a file is in `sys.modules`."""
    stem = re.sub(r"\W", "_", os.path.splitext(os.path.basename(path))[0])
    return f"_larder_hooks_{number}_{stem}"


def _check_hooks(hooks: List[Hook], paths: List[str]) -> None:
    if not hooks:
        raise LoadFailed(
            f"{' and '.join(map(os.path.basename, paths)) or 'no file'} defines no hook:"
            f" put @larder.request, @larder.page('/...'), @larder.found, @larder.fetched or @larder.respond before a function"
        )
    if len(hooks) > HOOKS_MAX:
        raise LoadFailed(
            f"there are {len(hooks)} hooks, and at most {HOOKS_MAX} can be: the last one is {hooks[-1].name} in"
            f" {hooks[-1].file}, line {hooks[-1].line}; let one hook look at several paths"
        )
    seen: Dict[Tuple[str, int, str], str] = {}
    for hook in hooks:
        module = seen.setdefault((hook.file, hook.line, hook.name), hook.module)
        if module != hook.module and hook.file in paths:
            raise LoadFailed(
                f"{hook.file} was loaded twice, also by an import as a module: put what several files of hooks need into"
                f" a file without hooks"
            )
    size = len(json.dumps([*paths, *(hook.describe() for hook in hooks)]))
    if size > _DESCRIPTIONS_BYTES_MAX:
        raise LoadFailed(
            f"names, files and filters of {len(hooks)} hooks take {size} bytes, and at most {_DESCRIPTIONS_BYTES_MAX} can be:"
            f" use patterns in place of long lists, or let one hook look at several paths"
        )


def named_routes(paths: Sequence[str], kept: KeptFiles) -> List[Dict[str, Any]]:
    """Find the routes that hooks name in so many words, `req.route = "b"`, so that Larder can refuse those that do not exist."""
    routes: List[Dict[str, Any]] = []
    for path in paths:
        tree = ast.parse(kept.bytes_of(path), path)
        for function in ast.walk(tree):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and function.args.args:
                request = function.args.args[0].arg
                for name, line in _routes_in(function, request):
                    route = {"name": name, "file": path, "line": line}
                    if route not in routes:
                        routes.append(route)
    return routes[:_ROUTES_MAX]


def _routes_in(function: ast.AST, request: str) -> Iterator[Tuple[str, int]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and any(_is_route(target, request) for target in node.targets):
            values = [node.value]
            while values:
                value = values.pop()
                if isinstance(value, ast.IfExp):
                    values += [value.body, value.orelse]
                elif isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value, value.lineno


def _is_route(target: ast.expr, request: str) -> bool:
    is_attribute = isinstance(target, ast.Attribute) and target.attr == "route"
    return is_attribute and isinstance(target.value, ast.Name) and target.value.id == request  # type: ignore[attr-defined]


def _missing_file_hint(path: str) -> str:
    folder = os.path.dirname(path)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    except OSError as error:
        return f"there is no file {path}: its folder can't be read ({error.strerror})"
    return f"there is no file {path}; the folder has {', '.join(names[:20]) or 'no Python files'}"


def _import_hint(file: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return (
            f"{file} imports {error.name!r}, which is neither in its folder nor among the packages of {sys.executable}"
            f" (Python {platform.python_version()}): if it is installed in a virtual environment, name that one's"
            f" interpreter (its bin/python)"
        )
    return f"importing {file} failed: see the last lines of the traceback"


class Connection:
    """One connection of Larder."""

    __slots__ = ("fd", "feed", "is_sound", "receive", "send", "socket", "unsent")

    def __init__(self, sock: socket.socket, calls: Calls, send: Callable[["Connection", bytes], None]) -> None:
        self.socket = sock
        self.fd = sock.fileno()
        # Bound once, and not looked up for each batch of calls.
        self.receive = sock.recv
        self.send = partial(send, self)
        self.feed = Frames(calls).feed
        self.unsent = b""
        """Replies that the socket does not take yet. No more calls are read as long as there are some."""
        self.is_sound = True
        """Whether the connection goes on after these replies."""


class Server:
    """Serves the connections of Larder, one call after the other."""

    def __init__(self, calls: Calls, listener: socket.socket, larder: Optional[_peers.Server] = None) -> None:
        self._calls = calls
        self._listener = listener
        self._larder = larder
        self._connections: Dict[int, Connection] = {}
        # Without the objects that a selector makes for each event: a call that comes alone is a batch of its own.
        self._poll: Any = _poll.new_poll()
        self._draining = False
        self._signals = os.pipe()
        for fd in self._signals:
            os.set_blocking(fd, False)
        # Before Larder knows that the process is ready, and may end it.
        signal.signal(signal.SIGTERM, lambda *_: self._begin_drain())
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until SIGTERM, and reply to what was sent before."""
        listener, signals = self._listener.fileno(), self._signals[0]
        self._listener.setblocking(False)
        self._poll.register(listener, _poll.READABLE)
        self._poll.register(signals, _poll.READABLE)
        wait, connection_of, serve = self._poll.poll, self._connections.get, self._serve
        while not self._draining:
            for fd, _ in wait(-1, _EVENTS_MAX):
                connection = connection_of(fd)
                if connection is not None:
                    serve(connection)
                elif fd == listener:
                    self._accept()
                else:
                    self._read_signals()
        while self._serve_rest():
            pass
        self._listener.close()
        self._calls.close()
        # A second SIGTERM would end the interpreter in the middle of its exit handlers.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _begin_drain(self) -> None:
        self._draining = True
        # Ends the wait for events, also where the hooks set a wakeup descriptor of their own.
        try:
            os.write(self._signals[1], b"\0")
        except BlockingIOError:
            pass

    def _read_signals(self) -> None:
        try:
            os.read(self._signals[0], 64)
        except BlockingIOError:
            pass

    def _serve_rest(self) -> bool:
        """Serve what was already sent before the drain began."""
        is_waiting = any(connection.unsent for connection in self._connections.values())
        # More than the connections may be readable: the listener, and the pipe of signals.
        events = self._poll.poll(_UNSENT_SECONDS if is_waiting else 0, len(self._connections) + 2)
        ready = [self._connections[fd] for fd, _ in events if fd in self._connections]
        for connection in ready:
            self._serve(connection)
        return bool(ready)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # Out of descriptors, most likely: the connection waits in the backlog until others are closed.
            print(f"larder: can't accept a connection: {error}", file=sys.stderr)
            threading.Event().wait(0.05)
            return
        if not _peers.is_of(self._larder, sock):
            sock.close()
            return
        sock.setblocking(False)
        connection = Connection(sock, self._calls, self._send)
        self._connections[connection.fd] = connection
        self._poll.register(connection.fd, _poll.READABLE)

    def _serve(self, connection: Connection) -> None:
        """Read what is there, run the calls, and send their replies, all at once where the hooks are quick."""
        try:
            if connection.unsent:
                self._send(connection, b"")
            else:
                data = connection.receive(_RECEIVE_BYTES)
                if not data:
                    self._close(connection)
                    return
                try:
                    replies, connection.is_sound = connection.feed(data, connection.send)
                finally:
                    self._calls.rest()
                if replies:
                    self._send(connection, replies)
            if not connection.is_sound and not connection.unsent:
                self._close(connection)
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, MemoryError):
            self._close(connection)

    def _send(self, connection: Connection, replies: bytes) -> None:
        was_waiting = bool(connection.unsent)
        data = connection.unsent + replies if was_waiting else replies
        try:
            sent = connection.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent == len(data) and not was_waiting:
            return
        connection.unsent = data[sent:] if sent < len(data) else b""
        is_waiting = bool(connection.unsent)
        if is_waiting != was_waiting:
            self._poll.modify(connection.fd, _poll.WRITABLE if is_waiting else _poll.READABLE)

    def _close(self, connection: Connection) -> None:
        # Out of the map before the number can be given to another connection.
        del self._connections[connection.fd]
        self._poll.unregister(connection.fd)
        connection.socket.close()


def serve(listener: socket.socket, control: Control, settings: Settings) -> None:
    """Load the hooks, tell Larder of them, and serve until SIGTERM."""
    try:
        kept = KeptFiles.read(settings.kept)
    except (OSError, ValueError) as error:
        raise LoadFailed(f"the files of the last version can't be read: {error}") from error
    kept.arrange()
    hooks, paths = load_files([name for name in settings.module.split(",") if name], settings.folder, kept)
    server = Server(Calls(hooks, control.report_error, _shared_memory(settings.running)), listener, settings.server)
    control.send("ready", _ready_message(settings, hooks, paths, kept))
    server.run()


def _shared_memory(descriptor: Optional[int]) -> Optional[mmap.mmap]:
    """Return the memory in which Larder reads which call runs. From here on nothing writes into it by a descriptor."""
    if descriptor is None:
        return None
    try:
        memory = mmap.mmap(descriptor, RUNNING_BYTES)
        for seal in (_SEAL_FUTURE_WRITE, _SEAL_SEAL):
            try:
                # `mmap` keeps a descriptor of its own, which a script could hit.
                fcntl.fcntl(descriptor, _ADD_SEALS, seal)
            except OSError:
                # The first one needs Linux 5.1.
                pass
        return memory
    finally:
        os.close(descriptor)


def _ready_message(settings: Settings, hooks: List[Hook], paths: List[str], kept: KeptFiles) -> Dict[str, Any]:
    message = ready_message(settings)
    message["hooks"] = [hook.describe() for hook in hooks]
    message["routes"] = named_routes(paths, kept)
    others = [path for path in message["files"] if path not in paths][: FILES_MAX - len(paths)]
    # The whole line has a limit. The hooks have to be in it; of the files that they import as many as there is room for.
    room = LINE_BYTES_MAX - len(encode_line("ready", {**message, "files": paths}))
    while others and len(json.dumps(others)) > room:
        others = others[: len(others) * 3 // 4]
    message["files"] = paths + others
    return message
