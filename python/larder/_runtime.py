"""Start of a worker process: descriptors, limits, signals, loading of the application, reports to Larder.

Larder starts the process with a listening Unix socket as descriptor 0, a pipe for reports as 1, the log
as 2, and the settings as JSON in `LARDER_SCRIPT`.
"""

import difflib
import faulthandler
import importlib
import importlib.util
import inspect
import json
import linecache
import os
import platform
import signal
import socket
import stat
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, NoReturn, Optional, Tuple

from . import _confine, _peers, _poll

LINE_BYTES_MAX = 64 * 1024 - 1
FILES_MAX = 2000
_SOURCES_BYTES_MAX = 4 * 1024 * 1024
"""Of further files a traceback shows the lines as they are on disk."""
EXIT_FAILED = 3
# Exceptions that are looked at, each the cause of the one before.
_CAUSES_MAX = 16
# A report waits this long for a full pipe, then it is dropped: the application goes first.
_REPORT_SECONDS = 0.2
# Freed when memory ran out, so that there is enough to format and send the traceback.
_RESERVE_BYTES = 2 * 1024 * 1024

_NOT_THE_APPLICATION = (os.path.join(os.path.dirname(__file__), ""), "<frozen importlib", importlib.__file__)


class LoadFailed(Exception):
    """The application can't be served. The message is a hint for its author; the cause has the traceback."""


class Settings(NamedTuple):
    """What `LARDER_SCRIPT` says."""

    interface: str
    """`wsgi`, `asgi` or `hooks`."""
    module: str
    """Of hooks: the names of their files, with commas between them."""
    attribute: str
    factory: bool
    """Whether the attribute is called to get the application."""
    folder: str
    threads: int
    memory_bytes: Optional[int]
    body_bytes_max: Optional[int]
    debug: bool
    write: List[str]
    """Further folders below which the process may write."""
    network: bool
    children_max: Optional[int]
    """The processes that it may have started at once, where nothing else bounds them."""
    sources: "Sources"
    """The lines of what is loaded."""
    confinement: _confine.Confinement = _confine.Confinement([], [])
    """What bounds the process."""
    kept: Optional[str] = None
    """A folder with the files of hooks as an earlier process has loaded them."""
    running: Optional[int] = None
    """The descriptor of the memory in which a process of hooks notes the call that it runs."""
    server: Optional[_peers.Server] = None
    """Whose connections are taken; without it those of all."""


def parse_settings(text: str) -> Settings:
    raw: Dict[str, Any] = json.loads(text)
    interface, colon, rest = str(raw["app"]).partition(":")
    if not colon or interface not in ("wsgi", "asgi", "hooks") or not rest:
        raise LoadFailed(
            f"{raw['app']!r} is not of the form 'wsgi:module:attribute', 'asgi:module:attribute' or 'hooks:file.py,other.py'"
        )
    module, _, attribute = (rest, "", "") if interface == "hooks" else rest.partition(":")
    factory = attribute.endswith("()")
    if factory:
        attribute = attribute[:-2]
    return Settings(
        interface=interface,
        module=module,
        attribute=attribute or ("application" if interface == "wsgi" else "app"),
        factory=factory,
        folder=str(raw.get("folder") or os.getcwd()),
        threads=max(1, int(raw.get("threads") or 1)),
        memory_bytes=raw.get("memory_bytes"),
        body_bytes_max=raw.get("body_bytes_max"),
        debug=bool(raw.get("debug")),
        write=[str(path) for path in raw.get("write") or ()],
        network=raw.get("network") is not False,
        children_max=raw.get("children_max"),
        sources=Sources(),
        kept=raw.get("kept"),
        running=raw.get("running"),
        server=_peers.server_of(raw.get("server")),
    )


class Control:
    """The pipe of reports: one JSON object a line."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._lock = threading.Lock()
        self._torn = False
        """Whether the last line was written in part, so that the next one has to begin a new line."""
        self._reserve: Optional[bytearray] = bytearray(_RESERVE_BYTES)
        mode = os.fstat(fd).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            os.set_blocking(fd, False)

    def send(self, kind: str, message: Dict[str, Any]) -> bool:
        """Write a line. Return whether that was possible: a full or closed pipe is no reason to fail."""
        data = encode_line(kind, message)
        deadline = time.monotonic() + _REPORT_SECONDS
        with self._lock:
            if self._torn:
                data = b"\n" + data
            total = len(data)
            try:
                while data:
                    try:
                        data = data[os.write(self.fd, data) :]
                    except BlockingIOError:
                        wait = deadline - time.monotonic()
                        if wait <= 0:
                            break
                        _poll.wait_writable(self.fd, wait)
            except (OSError, ValueError):
                pass
            if data and len(data) < total:
                self._torn = True
            elif not data:
                self._torn = False
        return not data

    def forget_in_child(self) -> None:
        # Another thread may have held the lock at the moment of the fork.
        self._lock = threading.Lock()

    def report_error(self, request: str, method: str, target: str, error: BaseException) -> str:
        """Tell Larder of an exception of a request, and return its traceback."""
        if isinstance(error, MemoryError):
            self._reserve = None
        try:
            text = format_error(error)
            message = {"request": request, "method": method, "target": target[:2048], "traceback": text}
            if not self.send("error", message):
                print(text, file=sys.stderr, flush=True)
            return text
        except Exception:
            return repr(type(error))
        finally:
            if self._reserve is None:
                # The frames of the traceback hold what filled the memory.
                error.__traceback__ = None
                try:
                    self._reserve = bytearray(_RESERVE_BYTES)
                except MemoryError:
                    pass


def encode_line(kind: str, message: Dict[str, Any]) -> bytes:
    """Encode a report as one line of at most `LINE_BYTES_MAX` bytes: long texts and lists are cut."""
    budget = LINE_BYTES_MAX
    while True:
        cut = {key: _cut(value, budget) for key, value in message.items()}
        # Half of a surrogate pair, as in names of files, is no text to readers of JSON.
        data = json.dumps({kind: cut}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        if len(data) <= LINE_BYTES_MAX:
            return data
        # Characters that JSON escapes take up to twelve bytes.
        budget = budget * 7 // 8


def _cut(value: Any, size: int) -> Any:
    if isinstance(value, str) and len(value) > size:
        # The end of a traceback says most, its beginning says where it came from.
        head = size // 4
        tail = size - head
        return f"{value[:head]}\n… ({len(value) - size} characters left out) …\n{value[-tail:]}"
    if isinstance(value, list):
        kept: List[Any] = []
        for item in value:
            size -= len(json.dumps(item)) + 2
            if size < 0:
                break
            kept.append(item)
        return kept
    return value


def format_error(error: BaseException) -> str:
    """Format an exception without the frames of the runtime and of the import system at its beginning."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_NOT_THE_APPLICATION):
        frames = frames.tb_next
    if frames is None and not isinstance(error, SyntaxError):
        frames = error.__traceback__
    # At the beginning, for the last line is the one that is shown where there is room for one.
    return _writing_hint(error) + "".join(traceback.format_exception(type(error), error, frames))


def _writing_hint(error: BaseException) -> str:
    """Return a line for errors that a bound of the process may have caused: these name no setting."""
    is_refused = isinstance(error, PermissionError) and error.filename is not None
    # SQLite tells no more than that.
    is_database = type(error).__name__ == "OperationalError" and any(
        part in str(error) for part in ("readonly database", "unable to open database")
    )
    if not is_refused and not is_database:
        return ""
    return "larder: the process may write below `folder`, folders for temporary files and those in `write` of its [[python]]\n"


def take_descriptors() -> Tuple[socket.socket, Control]:
    """Move listener and control pipe to private descriptors, so that neither the application nor its children see them."""
    listener = socket.socket(fileno=os.dup(0))
    control = Control(os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    # The log is read line by line, whatever kind of file it is.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    return listener, control


def arrange_signals() -> None:
    """Leave Ctrl-C to Larder, and print the tracebacks of all threads on SIGUSR2, to tell where a process hangs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(file=2, all_threads=True)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)


def guard_forks(control: Control, own_descriptors: Callable[[], Iterable[int]]) -> None:
    """Let a child that the application forks keep nothing of the runtime.

    It would drain this process by its own SIGTERM (multiprocessing sends that), take events out of the poll
    object, and keep connections open whose end Larder waits for. Each descriptor is replaced by /dev/null
    instead of being closed: the objects that hold the number close it another time.
    """
    null = os.open(os.devnull, os.O_RDWR)
    held: Dict[int, Any] = {}

    def hold_sigterm() -> None:
        # Until the child is blind, since the handler that it inherited would write to our pipe.
        held[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def release_sigterm() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held.pop(threading.get_ident(), ()))

    def blind() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        control.forget_in_child()
        for fd in (*own_descriptors(), control.fd):
            os.dup2(null, fd, inheritable=False)
        release_sigterm()

    os.register_at_fork(before=hold_sigterm, after_in_parent=release_sigterm, after_in_child=blind)


def arrange_path(folder: str) -> None:
    """Put the folder of the application first and that of the runtime last.

    The package `larder` is imported already, so its modules are found whatever the path says.
    """
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rest = [path for path in sys.path if path not in ("", own, folder)]
    sys.path[:] = [folder, *rest, own]


def load_application(settings: Settings) -> Callable[..., Any]:
    """Import the application. Raise `LoadFailed`, with the cause, for whatever stands in the way."""
    try:
        module = importlib.import_module(settings.module)
    except ModuleNotFoundError as error:
        raise LoadFailed(_missing_module_hint(settings, error)) from error
    except BaseException as error:
        raise LoadFailed(f"importing {settings.module} failed: see the last lines of the traceback") from error
    found: Any = module
    for name in settings.attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise LoadFailed(_missing_attribute_hint(settings.module, found, name)) from error
    label = f"{settings.module}:{settings.attribute}"
    if settings.factory:
        if not callable(found):
            raise LoadFailed(f"{label} is {_kind(found)}: it can't be called to get an application")
        try:
            found = found()
        except BaseException as error:
            raise LoadFailed(f"{label}() raised {type(error).__name__}: see the last lines of the traceback") from error
        label += "()"
    if not callable(found):
        raise LoadFailed(f"{label} is {_kind(found)}, which can't be called: name the application object")
    application: Callable[..., Any] = found
    _check_interface(settings, label, application)
    return application


def _check_interface(settings: Settings, label: str, application: Callable[..., Any]) -> None:
    """Tell an application of the other interface before each of its requests fails."""
    if settings.interface == "wsgi":
        called = application if inspect.isfunction(application) else getattr(application, "__call__", None)
        if inspect.iscoroutinefunction(called):
            raise LoadFailed(f"{label} is an ASGI application: write 'asgi:' in place of 'wsgi:'")
        return
    try:
        signature = inspect.signature(application)
    except (TypeError, ValueError):
        return
    try:
        signature.bind({}, None, None)
    except TypeError:
        hint = f"{label} does not take scope, receive and send as an ASGI 3 application does"
        try:
            signature.bind({}, None)
        except TypeError:
            raise LoadFailed(hint) from None
        raise LoadFailed(f"{hint}; for a WSGI application write 'wsgi:' in place of 'asgi:'") from None


def _missing_module_hint(settings: Settings, error: ModuleNotFoundError) -> str:
    missing = error.name or settings.module
    python = f"{sys.executable} (Python {platform.python_version()})"
    if settings.module == missing or settings.module.startswith(missing + "."):
        hint = f"there is no module {missing!r} in the folder {settings.folder}, nor among the packages of {python}"
        first = missing.partition(".")[0]
        taken = getattr(sys.modules.get(first), "__file__", None)
        close = difflib.get_close_matches(first, _modules_of(settings.folder))
        if taken and first in close and not os.path.abspath(taken).startswith(os.path.join(settings.folder, "")):
            hint += f"; the name {first!r} is taken by {taken}, which was loaded before"
        elif close:
            hint += f"; the folder has {' and '.join(close)}"
        return hint
    return (
        f"the application imports {missing!r}, which {python} does not have: "
        f"if it is installed in a virtual environment, name that one's interpreter (its bin/python)"
    )


def _modules_of(folder: str) -> List[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [name[:-3] if name.endswith(".py") else name for name in names if name.endswith(".py") or "." not in name]


def _missing_attribute_hint(module: str, found: Any, name: str) -> str:
    place = module if isinstance(found, type(sys)) else f"{type(found).__name__} object in {module}"
    names = [other for other in dir(found) if not other.startswith("_")]
    close = difflib.get_close_matches(name, names, cutoff=0.5)
    for usual in ("app", "application", "wsgi_app", "create_app"):
        if usual in names and usual not in close:
            close.append(usual)
    hint = f"{place} has no attribute {name!r}"
    return hint + (f"; it has {', '.join(close)}" if close else "")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def source_files(folder: str, module: str) -> List[str]:
    """List the source files that the application consists of: when one changes, it has to be loaded anew."""
    main = getattr(sys.modules.get(module), "__file__", None)
    files = [os.path.abspath(main)] if main else []
    # The main module counts wherever it lies.
    return list(dict.fromkeys([*files, *own_files(folder, list(sys.modules))]))[:FILES_MAX]


def own_files(folder: str, names: Iterable[str]) -> List[str]:
    """List the source files of those of these modules that lie in the folder of the application.

    Installed packages don't count, also where the virtual environment lies in the folder.
    """
    files = (getattr(sys.modules.get(name), "__file__", None) for name in names)
    return _own(folder, (file for file in files if isinstance(file, str)))


def _own(folder: str, paths: Iterable[str]) -> List[str]:
    """Return those of these source files that lie in the folder and are not installed."""
    below = os.path.join(os.path.realpath(folder), "")
    prefix = os.path.join(os.path.realpath(sys.prefix), "")
    installed = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
    files: List[str] = []
    for path in paths:
        if not path.endswith(".py"):
            continue
        real = os.path.realpath(path)
        if not real.startswith(below) or any(part in real for part in installed):
            continue
        if prefix != below and prefix.startswith(below) and real.startswith(prefix):
            continue
        files.append(os.path.abspath(path))
    return files


def files_of_failure(settings: Settings, error: Optional[BaseException]) -> List[str]:
    """List the source files by whose change an application may be loaded that could not be.

    A module whose import failed is no module any more, and one that was not found never was one: they are known by
    the names in the settings and by the exceptions.
    """
    folder = settings.folder
    if settings.interface == "hooks":
        paths = [os.path.join(folder, name.strip()) for name in settings.module.split(",")]
    else:
        paths = _paths_of_module(folder, settings.module)
    # Not "unless it was seen": an author's exception may have an `__eq__` or a truth value of its own.
    for _ in range(_CAUSES_MAX):
        if error is None:
            break
        for frame, _ in traceback.walk_tb(error.__traceback__):
            paths.append(frame.f_code.co_filename)
        if isinstance(error, SyntaxError) and isinstance(error.filename, str):
            paths.append(os.path.join(folder, error.filename))
        if isinstance(error, ModuleNotFoundError) and isinstance(error.name, str):
            paths += _paths_of_module(folder, error.name)
        error = error.__context__ if error.__cause__ is None else error.__cause__
    return _own(folder, dict.fromkeys(paths))


def _paths_of_module(folder: str, name: str) -> List[str]:
    base = os.path.join(folder, *name.split("."))
    return [f"{base}.py", os.path.join(base, "__init__.py")]


class Sources:
    """Source lines of what is loaded, for tracebacks: after a file has changed they show the lines that run, not the new ones."""

    def __init__(self) -> None:
        self._room = _SOURCES_BYTES_MAX
        self._before = time.time()
        """A file that was changed after this time may have been imported as it was before."""

    def keep(self, files: Iterable[str]) -> None:
        """Keep the lines of files that were imported since the last call."""
        for path in files:
            # Without a time an entry is not looked up anew. Those of files of hooks are there since their import.
            known = linecache.cache.get(path)
            if known is not None and len(known) == 4 and known[1] is None:
                continue
            try:
                with open(path, "rb") as file:
                    size, changed = os.fstat(file.fileno()).st_size, os.fstat(file.fileno()).st_mtime
                    if size > self._room or changed >= self._before:
                        continue
                    data = file.read()
                lines = importlib.util.decode_source(data).splitlines(True)
            except (OSError, SyntaxError, UnicodeError):
                continue
            self._room -= len(data)
            linecache.cache[path] = (len(data), None, lines, path)
        self._before = time.time()


class LateFiles:
    """Source files that are imported after the application was ready, as views are by the first request for them."""

    def __init__(self, control: Control, settings: Settings, files: Iterable[str]) -> None:
        self._control = control
        self._sources = settings.sources
        self._folder = settings.folder
        self._files = set(files)
        self._modules = set(sys.modules)
        self._count = len(sys.modules)

    def look(self) -> None:
        """Tell Larder of new ones. Costs next to nothing where no module was imported since the last look."""
        if len(sys.modules) == self._count:
            return
        self._count = len(sys.modules)
        names = [name for name in list(sys.modules) if name not in self._modules]
        self._modules.update(names)
        files = [file for file in own_files(self._folder, names) if file not in self._files]
        self._sources.keep(files)
        if files and len(self._files) + len(files) <= FILES_MAX and self._control.send("files", {"files": files}):
            self._files.update(files)


def ready_message(settings: Settings) -> Dict[str, Any]:
    files = source_files(settings.folder, settings.module)
    settings.sources.keep(files)
    is_gil_enabled = getattr(sys, "_is_gil_enabled", None)
    return {
        "pid": os.getpid(),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "free_threaded": is_gil_enabled is not None and not is_gil_enabled(),
        "interface": settings.interface,
        "threads": settings.threads if settings.interface == "wsgi" else 1,
        "files": files,
        "confined": settings.confinement.holds,
        "lacks": settings.confinement.lacks,
    }


def fail(control: Control, error: LoadFailed, settings: Optional[Settings] = None) -> NoReturn:
    """Tell why the application can't be served, and which files below the folder it consists of, and end the process."""
    cause = error.__cause__
    text = format_error(cause) if cause is not None else ""
    files: List[str] = []
    if settings is not None:
        files = files_of_failure(settings, cause)
        files = list(dict.fromkeys([*files, *own_files(settings.folder, list(sys.modules))]))
    if not control.send("failed", {"traceback": text, "hint": str(error), "files": files[:FILES_MAX]}):
        print(f"{text}larder: {error}", file=sys.stderr, flush=True)
    # Not by SystemExit: threads that the application started before it failed would keep the process.
    sys.stdout.flush()
    os._exit(EXIT_FAILED)


def main() -> None:
    """Run a worker process."""
    listener, control = take_descriptors()
    try:
        settings = parse_settings(os.environ.pop("LARDER_SCRIPT"))
    except (LoadFailed, KeyError, ValueError) as error:
        fail(control, error if isinstance(error, LoadFailed) else LoadFailed(f"LARDER_SCRIPT is malformed: {error!r}"))
    # Imported before the bounds are set: then nothing may be written to the folder of the runtime, not even compiled modules.
    serve = _server_of(settings.interface)
    bounds = _confine.Bounds(settings.folder, settings.memory_bytes, settings.write, settings.network, settings.children_max)
    settings = settings._replace(confinement=_confine.confine(bounds))
    arrange_signals()
    arrange_path(settings.folder)
    try:
        serve(listener, control, settings)
    except LoadFailed as error:
        fail(control, error, settings)


def _server_of(interface: str) -> Callable[[socket.socket, Control, Settings], None]:
    if interface == "asgi":
        from . import _asgi

        return lambda listener, control, settings: _asgi.serve(
            lambda: load_application(settings), listener, control, settings
        )
    if interface == "hooks":
        from . import _hooks

        return _hooks.serve
    from . import _wsgi

    def serve_wsgi(listener: socket.socket, control: Control, settings: Settings) -> None:
        server = _wsgi.Server(
            load_application(settings),
            listener,
            control.report_error,
            threads=settings.threads,
            body_bytes_max=settings.body_bytes_max,
            debug=settings.debug,
            larder=settings.server,
        )
        guard_forks(control, server.descriptors)

        def ready() -> None:
            message = ready_message(settings)
            control.send("ready", message)
            server.after_request = LateFiles(control, settings, message["files"]).look

        server.run(ready)

    return serve_wsgi
