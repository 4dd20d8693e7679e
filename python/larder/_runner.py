"""`larder test`: runs tests of hooks without installing anything.

Tests are functions `test_*`, methods `test_*` of classes `Test*` and of `unittest.TestCase`, and the examples in docstrings
(`>>>`). The same files run under pytest, which has more to offer.

Larder starts the process with the order as JSON in `LARDER_TEST`: files, pattern, whether the report is JSON, the seconds
that each test and the hooks of each call may take, and the file into which the exit status is written at the end.
"""

import ast
import asyncio
import doctest
import faulthandler
import inspect
import json
import os
import platform
import re
import selectors
import signal
import sys
import threading
import time
import traceback
import unittest
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from . import _asserting, _definitions, testing
from ._calls import Calls
from ._definitions import Hook

PASSED, FAILED_STATUS = 0, 1
_NOT_THE_AUTHORS = (
    *(os.path.join(os.path.dirname(os.path.abspath(file)), "") for file in (__file__, asyncio.__file__, unittest.__file__)),
    ast.__file__,
    selectors.__file__,
    "<frozen importlib",
)
# A test that goes on after its time in code that no exception interrupts ends the process.
_GRACE_SECONDS = 2.0
# A test that catches the exception of its time gets it again.
_REPEAT_SECONDS = 0.5
_SKIPPED = ("SkipTest", "Skipped")
# A call gets its time anew so often, where the machine did not let it use it.
_STARVED_MAX = 9


class TimeIsUp(BaseException):
    """A test ran longer than it may."""


class HookIsLate(BaseException):
    """The hooks of a call ran longer than they may."""


class TimedCall:
    """A call of hooks whose time is bounded."""

    def __init__(self, calls: Calls, hooks: List[Hook], seconds: float) -> None:
        self._calls = calls
        self._hooks = hooks
        self.seconds = seconds
        self._starved = 0
        self._waited = _waited_for_cpu()
        self.failure: Optional[str] = None

    def is_starved(self) -> bool:
        """Whether the machine let the process wait meanwhile: then the time begins anew, as in Larder's processes."""
        waited, self._waited = self._waited, _waited_for_cpu()
        self._starved += 1
        return self._starved <= _STARVED_MAX and self._waited - waited >= self.seconds / 4

    def end(self, stack: str) -> None:
        """Tell which hook ran, and where it was."""
        hook = self._hooks[self._calls.running_hook()]
        self.failure = (
            f"{_shown_path(hook.file)}:{hook.line}: {hook.name} took longer than hook_time ({self.seconds * 1000:g} ms), and was here:\n"
            f"{stack.rstrip()}\nLarder would end its process, and the call would have failed (504)."
        )


def _waited_for_cpu() -> float:
    """Return the seconds for which this thread has waited for a processor; 0 where the system does not tell."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Test(NamedTuple):
    """A test that can be run."""

    name: str
    line: int
    run: Callable[[], None]


class Result(NamedTuple):
    """The outcome of a test."""

    name: str
    line: int
    outcome: str
    """`passed`, `failed` or `skipped`."""
    millis: int
    failure: str
    """The place and the reason; empty where nothing failed."""


class Report(NamedTuple):
    """The results of a file."""

    file: str
    results: List[Result]
    hooks: List[Hook]
    """The hooks that it defines."""


class Limit:
    """The time that a test may take, and the hooks of each call in it."""

    def __init__(self, seconds: float, hook_seconds: Optional[float] = None) -> None:
        self._seconds = seconds
        self._hook_seconds = hook_seconds
        self._is_running = False
        self._call: Optional[TimedCall] = None
        self.stack: Optional[str] = None
        """Where the last test was when its time was up."""
        signal.signal(signal.SIGALRM, self._end)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Raise `TimeIsUp` in the block when it takes too long."""
        self.stack = None
        self._is_running = True
        faulthandler.dump_traceback_later(self._seconds + _GRACE_SECONDS, exit=True)
        signal.setitimer(signal.ITIMER_REAL, self._seconds, _REPEAT_SECONDS)
        try:
            yield
        finally:
            self._is_running = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()

    @contextmanager
    def of_call(self, calls: Calls, hooks: List[Hook]) -> Iterator[None]:
        """Raise `HookFailed` when the hooks of the call that is made in the block run longer than `hook_time`."""
        seconds, left = self._hook_seconds, signal.getitimer(signal.ITIMER_REAL)[0]
        # A signal meets the main thread alone.
        is_main = threading.current_thread() is threading.main_thread()
        if seconds is None or not is_main or self._call is not None or not self._is_running or left <= seconds:
            yield
            return
        begun = time.monotonic()
        call = self._call = TimedCall(calls, hooks, seconds)
        signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_SECONDS)
        try:
            yield
        except HookIsLate:
            pass
        finally:
            self._call = None
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), 0.001), _REPEAT_SECONDS)
        # Also where the hook caught the exception and went on.
        if call.failure is not None:
            raise testing.HookFailed(call.failure)

    def _end(self, _: int, frame: Optional[FrameType]) -> None:
        if not self._is_running:
            return
        call = self._call
        if call is not None:
            if call.failure is None:
                if call.is_starved():
                    signal.setitimer(signal.ITIMER_REAL, call.seconds, _REPEAT_SECONDS)
                    return
                call.end(_stack(frame))
            raise HookIsLate
        if self.stack is None:
            self.stack = _stack(frame)
        raise TimeIsUp

    def words(self) -> str:
        return f"it took longer than {self._seconds:g} s, and was here:\n{(self.stack or '').rstrip()}"


def _stack(frame: Optional[FrameType]) -> str:
    return "".join(traceback.format_list(_of_author(traceback.extract_stack(frame)) + _waiting_tasks()))


def _waiting_tasks() -> List[traceback.FrameSummary]:
    """The lines at which coroutines wait: the stack of an event loop does not have them."""
    try:
        tasks = asyncio.all_tasks(asyncio.get_running_loop())
    except RuntimeError:
        return []
    frames = [frame for task in tasks for frame in task.get_stack()]
    return _of_author([summary for frame in frames for summary in traceback.extract_stack(frame, limit=1)])


def _of_author(frames: List[traceback.FrameSummary]) -> List[traceback.FrameSummary]:
    """Leave out the frames of this package, and what called it."""
    last_own = max((at for at, frame in enumerate(frames) if frame.filename == __file__), default=-1)
    frames = frames[last_own + 1 :]
    return [frame for frame in frames if not frame.filename.startswith(_NOT_THE_AUTHORS)]


def describe_failure(error: BaseException) -> str:
    """Tell where a test failed and why, without the frames of the runner."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = ""
    # The message of a failed hook has the traceback of its cause already.
    if cause is not None and not isinstance(error, testing.HookFailed):
        before = f"{describe_failure(cause)}\n\nand then:"
    frames = _of_author(traceback.extract_tb(error.__traceback__))
    if isinstance(error, AssertionError):
        lines = [f"{_place(frame)}\n    {frame.line}" for frame in frames]
        return "\n".join([*([before] if before else []), *lines, _indented(str(error))]).rstrip()
    if isinstance(error, testing.HookFailed):
        text = f"HookFailed\n{_indented(str(error))}"
    else:
        text = "".join(traceback.format_exception_only(type(error), error))
    return "\n".join([*([before] if before else []), f"{''.join(traceback.format_list(frames))}{text}"]).rstrip()


def _place(frame: traceback.FrameSummary) -> str:
    return f"{_shown_path(frame.filename)}:{frame.lineno}, in {frame.name}"


def _shown_path(path: str) -> str:
    """A path below the working directory is shown as such."""
    below = os.path.relpath(path)
    return path if below.startswith("..") else below


def _indented(text: str) -> str:
    return "\n".join(f"      {line}" for line in text.splitlines())


def run_file(path: str, pattern: str, limit: Limit) -> Report:
    """Import a file, and run its tests whose names have the pattern in them."""
    known = len(_definitions.registered)
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    begun = time.perf_counter()
    try:
        with limit.kept():
            module = _asserting.run_module(path, f"_larder_test_{len(sys.modules)}_{_stem(path)}")
            tests = list(find_tests(module))
    except BaseException as error:
        outcome = "skipped" if type(error).__name__ in _SKIPPED else "failed"
        text = limit.words() if limit.stack is not None else describe_failure(error)
        return Report(path, [Result("(import)", 1, outcome, _millis(begun), text)], [])
    results = [run_test(test, limit) for test in tests if pattern.lower() in test.name.lower()]
    return Report(path, results, _definitions.registered[known:])


def _stem(path: str) -> str:
    return re.sub(r"\W", "_", os.path.splitext(os.path.basename(path))[0])


def _millis(begun: float) -> int:
    return round((time.perf_counter() - begun) * 1000)


def run_test(test: Test, limit: Limit) -> Result:
    """Run a test within its time."""
    begun = time.perf_counter()
    outcome, failure = "passed", ""
    try:
        with limit.kept():
            test.run()
    except TimeIsUp:
        pass
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        outcome = "skipped" if type(error).__name__ in _SKIPPED else "failed"
        failure = str(error) if outcome == "skipped" else describe_failure(error)
    if limit.stack is not None:
        # Also where the test caught the exception and went on.
        outcome, failure = "failed", limit.words()
    return Result(test.name, test.line, outcome, _millis(begun), failure)


def find_tests(module: ModuleType) -> Iterator[Test]:
    """Find the tests of a module, in the order of its lines."""
    found: List[Test] = []
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if name.startswith("test_") and inspect.isfunction(value):
            found.append(Test(name, value.__code__.co_firstlineno, _runnable(value, module)))
        elif isinstance(value, type) and issubclass(value, unittest.TestCase):
            found += _tests_of_case(name, value)
        elif isinstance(value, type) and name.startswith("Test"):
            found += _tests_of_class(name, value, module)
    yield from sorted(found, key=lambda test: test.line)
    yield from _examples(module)


def _tests_of_case(name: str, case: Any) -> Iterator[Test]:
    for method in unittest.TestLoader().getTestCaseNames(case):
        line = inspect.unwrap(getattr(case, method)).__code__.co_firstlineno
        yield Test(f"{name}.{method}", line, case(method).debug)


def _tests_of_class(name: str, kind: Any, module: ModuleType) -> Iterator[Test]:
    for method, function in vars(kind).items():
        if method.startswith("test_") and inspect.isfunction(function):
            yield Test(f"{name}.{method}", function.__code__.co_firstlineno, _runnable(function, module, kind))


def _runnable(function: Callable[..., Any], module: ModuleType, kind: Optional[Callable[[], Any]] = None) -> Callable[[], None]:
    wanted = list(inspect.signature(function).parameters)[0 if kind is None else 1 :]

    def run() -> None:
        others = [name for name in wanted if name != "hooks"]
        if others:
            raise TypeError(
                f"{function.__name__} wants {', '.join(others)}, and `larder test` has the fixture `hooks` alone:"
                f" pytest has others (pytest -p larder.testing)"
            )
        arguments = [] if kind is None else [kind()]
        if wanted:
            arguments.append(testing.Script(testing.file_of_hooks(str(module.__file__))))
        value = function(*arguments)
        if inspect.iscoroutine(value):
            asyncio.run(value)
        elif value is not None:
            raise TypeError(f"{function.__name__} returns {type(value).__name__}: a test asserts, and returns nothing")

    return run


def _examples(module: ModuleType) -> Iterator[Test]:
    names = {"call": testing.call, "load": testing.load, **vars(module)}
    for example in doctest.DocTestFinder().find(module, module.__name__, globs=names):
        if example.examples:
            name = example.name.replace(module.__name__, "examples").replace("examples.", "examples of ")
            yield Test(name, (example.lineno or 0) + 1, _example(example))


def _example(example: doctest.DocTest) -> Callable[[], None]:
    def run() -> None:
        said: List[str] = []
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(example, out=lambda text: said.append(text))
        if runner.failures:
            raise AssertionError("".join(said).replace("*" * 70 + "\n", "").replace(f", in {example.name}", "").strip())

    return run


def list_hooks(report: Report) -> str:
    """Tell what hooks a file without tests has, and how a test is written."""
    name = os.path.basename(report.file)
    rows = [(hook.name, hook.stage, _filters(hook), f"line {hook.line}") for hook in report.hooks]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    lines = [f"  {row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]:{widths[2]}}  {row[3]}" for row in rows]
    number = f"{len(rows)} hooks" if len(rows) > 1 else "one hook"
    return "\n".join(
        [
            f"{name} has no tests. It has {number}:",
            *lines,
            "",
            f"A test of it, in test_{name}:",
            "",
            *_sample(name, report.hooks[0]),
        ]
    )


def _filters(hook: Hook) -> str:
    filters = [("host", hook.hosts), ("path", hook.paths), ("method", hook.methods), ("field", hook.field_names)]
    texts = [f"{name} {' or '.join(values)}" for name, values in filters if values]
    if hook.statuses:
        texts.append(f"status {' or '.join(map(str, hook.statuses))}")
    if hook.remember_ms is not None:
        texts.append(f"remember {hook.remember_ms / 1000:g} s")
    return ", ".join(texts) or "each request"


def _sample(file: str, hook: Hook) -> List[str]:
    host = (hook.hosts or ["shop.example"])[0].replace("*.", "www.").replace("*", "shop.example")
    path = (hook.paths or ["/page"])[0].replace("**", "page").replace("*", "page").replace("{digit}", "1")
    request = f"{(hook.methods or ['GET'])[0]} http://{host}{path.replace('{hex}', '0' * 64)}?id=1"
    more = ""
    if hook.stage not in ("request", "page"):
        more = f", status={(hook.statuses or [200])[0]}"
    if hook.stage not in ("request", "page", "fetched"):
        more += f', stage="{hook.stage}"'
    if hook.field_names:
        more += f", headers={{{hook.field_names[0]!r}: '1'}}"
    return [
        "    from larder.testing import call",
        "",
        f"    def test_{hook.name}():",
        f'        decision = call("{file}", "{request}"{more})',
        f'        assert "{hook.name}" in decision.ran',
        "        print(decision)",
    ]


def show(reports: List[Report], pattern: str, seconds: float) -> str:
    """Tell the results to people."""
    lines: List[str] = []
    failures: List[str] = []
    for report in reports:
        name = _shown_path(report.file)
        if not report.results:
            lines.append(_without_tests(report, pattern, is_all=len(reports) == 1))
            continue
        lines.append(name)
        for result in report.results:
            word = {"passed": "ok", "failed": "FAIL", "skipped": "skip"}[result.outcome]
            note = f"  {result.failure}" if result.outcome == "skipped" and result.failure else ""
            lines.append(f"  {word:4}  {result.name}  {result.millis} ms{note}")
            if result.outcome == "failed":
                failures.append(f"FAIL  {result.name}  ({name}:{result.line})\n{result.failure}")
    text = "\n".join(lines + [f"\n{failure}" for failure in failures])
    counts = count(reports)
    if not any(counts.values()):
        return f"{text}\n\nno test ran"
    words = [
        f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped") if counts[outcome] or outcome != "skipped"
    ]
    return f"{text}\n\n{', '.join(words)} in {seconds:.2f} s (Python {platform.python_version()})"


def _without_tests(report: Report, pattern: str, is_all: bool) -> str:
    name = _shown_path(report.file)
    if pattern:
        return f"{name} has no test whose name has {pattern!r} in it"
    if report.hooks and is_all:
        return list_hooks(report)
    if report.hooks:
        return f"{name} has no tests; its hooks are {', '.join(hook.name for hook in report.hooks)}"
    return f"{name} has neither tests nor hooks: a test is a function whose name begins with test_"


def count(reports: List[Report]) -> Dict[str, int]:
    outcomes = [result.outcome for report in reports for result in report.results]
    return {outcome: outcomes.count(outcome) for outcome in ("passed", "failed", "skipped")}


def as_json(reports: List[Report], seconds: float) -> str:
    files = [
        {
            "file": report.file,
            "tests": [result._asdict() for result in report.results],
            "hooks": [hook.describe() for hook in report.hooks],
        }
        for report in reports
    ]
    facts = {"python": platform.python_version(), "millis": round(seconds * 1000)}
    return json.dumps({"files": files, **count(reports), **facts}, indent=2)


def run(order: Dict[str, Any]) -> int:
    """Run what is ordered, print the report, and return the exit status."""
    out = sys.stdout
    if order["json"]:
        # Output of tests is no part of the report.
        sys.stdout = sys.stderr
    begun = time.perf_counter()
    limit = Limit(order["seconds"], order.get("hook_seconds"))
    testing.limit_of_call = limit.of_call
    reports: List[Report] = []
    for path in order["files"]:
        reports.append(run_file(path, order["pattern"], limit))
        beside = _tests_beside(path)
        if not reports[-1].results and beside not in order["files"] and os.path.exists(beside):
            reports.append(run_file(beside, order["pattern"], limit))
    seconds = time.perf_counter() - begun
    text = as_json(reports, seconds) if order["json"] else show(reports, order["pattern"], seconds)
    sys.stdout.flush()
    print(text.encode("utf-8", "backslashreplace").decode("utf-8"), file=out, flush=True)
    counts = count(reports)
    # Nothing that ran is no success: it would be green in CI for good.
    return PASSED if counts["passed"] and not counts["failed"] else FAILED_STATUS


def _tests_beside(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f"test_{name}")


def main() -> None:
    """Run the tests that Larder ordered, and end the process."""
    order: Dict[str, Any] = json.loads(os.environ.pop("LARDER_TEST"))
    try:
        status = run(order)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = FAILED_STATUS
    except BrokenPipeError:
        status = FAILED_STATUS
    # Larder takes no other end for a success: a test may end the process.
    with open(order["outcome"], "w", encoding="ascii") as file:
        file.write(str(status))
    # Not by SystemExit: threads of tests would keep the process.
    os._exit(status)
