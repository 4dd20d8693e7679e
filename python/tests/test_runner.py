"""`larder test`: the runner of tests, as a process and by its parts."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import unittest
from typing import Any, Dict, List, NamedTuple, Optional

from hooks_double import HooksCase
from larder import _asserting, _definitions, testing
from larder_double import ROOT

COMMAND = "import os, sys; sys.path[0] = os.environ.pop('LARDER_LIBRARY'); from larder._runner import main; main()"
HOOKS = """
    import larder

    @larder.request(path="/shop/**", remember="60s")
    def plans(req):
        req.query.drop("utm_*")

    @larder.fetched(host="*.example", status=[200, 404])
    def keep(req, resp):
        resp.ttl = 30
"""


class Ran(NamedTuple):
    status: int
    told: Optional[str]
    """The exit status that the runner wrote at its end."""
    out: str
    err: str


class RunnerCase(HooksCase):
    def run_tests(
        self,
        *names: str,
        seconds: float = 10.0,
        hook_seconds: Optional[float] = None,
        pattern: str = "",
        is_json: bool = False,
    ) -> Ran:
        outcome = os.path.join(self.folder, "outcome")
        files = [os.path.join(self.folder, name) for name in names or ("test_policy.py",)]
        order = {"files": files, "pattern": pattern, "json": is_json, "seconds": seconds, "outcome": outcome}
        if hook_seconds is not None:
            order["hook_seconds"] = hook_seconds
        environment = {**os.environ, "LARDER_LIBRARY": ROOT, "LARDER_TEST": json.dumps(order)}
        done = subprocess.run(
            [sys.executable, "-c", COMMAND], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60
        )
        told = None
        if os.path.exists(outcome):
            with open(outcome, encoding="ascii") as file:
                told = file.read()
            os.remove(outcome)
        return Ran(done.returncode, told, done.stdout, done.stderr)

    def report(self, text: str, **options: Any) -> Dict[str, Any]:
        self.write(text, "test_policy.py")
        ran = self.run_tests(is_json=True, **options)
        said: Dict[str, Any] = json.loads(ran.out)
        self.assertEqual(ran.told, str(ran.status), ran)
        return said

    def outcomes(self, text: str, **options: Any) -> Dict[str, str]:
        return {test["name"]: test["outcome"] for test in self.report(text, **options)["files"][0]["tests"]}

    def failure(self, text: str, **options: Any) -> str:
        tests: List[Dict[str, Any]] = self.report(text, **options)["files"][0]["tests"]
        self.assertEqual(["failed"], [test["outcome"] for test in tests])
        failure: str = tests[0]["failure"]
        return failure


class Kinds(RunnerCase):
    def test_tests_of_all_kinds_are_found_in_their_order(self) -> None:
        self.write(HOOKS)
        said = self.outcomes(
            """
            import unittest
            from larder.testing import call

            def test_b(): assert call("policy.py", "/shop/a?utm_source=x&id=1").query == "id=1"
            async def test_a(): assert call("policy.py", "/shop/a").ran == ["plans"]
            def test_of_the_fixture(hooks): assert hooks.hooks == ["plans", "keep"]
            class TestShop:
                def test_method(self): pass
                def test_fixture(self, hooks): assert call(hooks, "/", status=404).ran == []
            class Case(unittest.TestCase):
                def setUp(self): self.value = 1
                def test_value(self): self.assertEqual(self.value, 1)
                @unittest.skip("later")
                def test_later(self): pass
            def helper(): raise AssertionError
            def test_broken(): assert False
            """
        )
        self.assertEqual(
            said,
            {
                "test_b": "passed", "test_a": "passed", "test_of_the_fixture": "passed", "TestShop.test_method": "passed",
                "TestShop.test_fixture": "passed", "Case.test_value": "passed", "Case.test_later": "skipped",
                "test_broken": "failed",
            },
        )  # fmt: skip
        self.assertEqual(list(said)[:2], ["test_b", "test_a"])

    def test_examples_in_docstrings_are_tests(self) -> None:
        self.write(
            '''
            import larder

            @larder.request(path="/shop/**")
            def plans(req):
                """Drop what campaigns add.

                >>> call(plans, "/shop/a?utm_source=x&id=1").query
                'id=1'
                >>> call(plans, "/shop/a").ran
                []
                """
                req.query.drop("utm_*")
            '''
        )
        ran = self.run_tests("policy.py")
        self.assertEqual((ran.status, ran.told), (1, "1"), ran)
        self.assertIn("FAIL  examples of plans", ran.out)
        self.assertIn("Got:\n          ['plans']", ran.out)

    def test_a_pattern_chooses(self) -> None:
        text = "def test_one(): pass\ndef test_two(): assert 0\ndef test_other_ONE(): pass\n"
        self.assertEqual(self.outcomes(text, pattern="one"), {"test_one": "passed", "test_other_ONE": "passed"})
        ran = self.run_tests(pattern="three")
        self.assertEqual(ran.status, 1)
        self.assertIn("test_policy.py has no test whose name has 'three' in it", ran.out)

    def test_the_tests_beside_hooks_are_run(self) -> None:
        self.write(HOOKS)
        self.write("def test_one(): pass\n", "test_policy.py")
        ran = self.run_tests("policy.py")
        self.assertEqual(ran.status, 0, ran)
        self.assertIn("policy.py has no tests; its hooks are plans, keep\ntest_policy.py\n  ok    test_one", ran.out)

    def test_hooks_without_tests_are_listed_with_a_test_that_passes(self) -> None:
        self.write(HOOKS)
        ran = self.run_tests("policy.py")
        self.assertEqual((ran.status, ran.told), (1, "1"))
        self.assertIn("plans  request  path /shop/**, remember 60 s", ran.out)
        self.assertIn("keep   fetched  host *.example, status 200 or 404", ran.out)
        sample = ran.out.partition("in test_policy.py:\n\n")[2].partition("no test ran")[0]
        self.write(sample, "test_policy.py")
        self.assertEqual(self.run_tests().status, 0)

    def test_nothing_is_no_success(self) -> None:
        self.write("x = 1\n", "test_policy.py")
        ran = self.run_tests()
        self.assertEqual((ran.status, ran.told), (1, "1"))
        self.assertIn("has neither tests nor hooks", ran.out)


class Failures(RunnerCase):
    def test_values_of_both_sides_are_shown(self) -> None:
        failure = self.failure("def test_x():\n    a = [1, 2]\n    assert a == [1, 3] and a, 'wrong'\n")
        self.assertIn("test_policy.py:3, in test_x\n    assert a == [1, 3] and a, 'wrong'\n", failure)
        self.assertIn("wrong\n      left   [1, 2]\n      right  [1, 3]", failure)

    def test_the_traceback_of_a_hook_is_shown_once(self) -> None:
        self.write("import larder\n@larder.request\ndef breaks(req):\n    req.headers['x-a'] = 3\n")
        failure = self.failure("from larder.testing import call\ndef test_x():\n    call('policy.py', '/')\n")
        self.assertEqual(failure.count("has to be a str, not int 3"), 1, failure)
        self.assertIn('policy.py", line 4, in breaks', failure)
        self.assertIn('test_policy.py", line 3, in test_x', failure)
        self.assertNotIn("_runner.py", failure)

    def test_files_that_cannot_be_imported(self) -> None:
        self.assertIn("SyntaxError", self.failure("def x(:\n"))
        self.assertIn("No module named 'absent_module'", self.failure("import absent_module\n"))
        self.assertIn("took longer than 0.2 s", self.failure("while True: pass\n", seconds=0.2))

    def test_a_fixture_of_pytest_is_named(self) -> None:
        self.assertIn(
            "test_x wants tmp_path, and `larder test` has the fixture `hooks` alone",
            self.failure("def test_x(tmp_path): pass\n"),
        )
        self.assertIn("hooks` of test_policy.py is the file policy.py beside it", self.failure("def test_x(hooks): pass\n"))

    def test_a_value_that_is_returned_is_no_assertion(self) -> None:
        self.assertIn("returns bool", self.failure("def test_x():\n    return 1 == 2\n"))


class Ends(RunnerCase):
    def test_a_hook_that_hangs_is_ended_with_its_stack_and_the_next_test_runs(self) -> None:
        self.write("import larder\n@larder.request\ndef hangs(req):\n    while True:\n        pass\n")
        said = self.report(
            "from larder.testing import call\ndef test_x():\n    call('policy.py', '/')\ndef test_y(): pass\n", seconds=0.3
        )
        first, second = said["files"][0]["tests"]
        self.assertEqual((first["outcome"], second["outcome"]), ("failed", "passed"))
        self.assertIn("it took longer than 0.3 s, and was here:", first["failure"])
        self.assertIn('policy.py", line ', first["failure"])
        self.assertIn("in hangs", first["failure"])
        self.assertLess(first["millis"], 2000)

    def test_the_line_at_which_a_coroutine_waits_is_shown(self) -> None:
        self.write("import larder, asyncio\n@larder.request\nasync def waits(req):\n    await asyncio.sleep(99)\n")
        failure = self.failure("from larder.testing import call\ndef test_x(): call('policy.py', '/')\n", seconds=0.3)
        self.assertIn("await asyncio.sleep(99)", failure)
        self.assertNotIn("selectors.py", failure)

    def test_hook_time_ends_a_hook_that_is_late_and_names_it_with_its_line(self) -> None:
        hooks = """\
            import larder, time
            def quick(req): pass
            larder.request(quick)
            @larder.request(path="/loop")
            def loop(req):
                while True:
                    pass
            @larder.request(path="/sleep")
            def sleep(req):
                time.sleep(5)
            @larder.request(path="/catch")
            def catch(req):
                try:
                    time.sleep(5)
                except BaseException:
                    pass
            @larder.request(path="/wait")
            async def wait(req):
                import asyncio
                await asyncio.sleep(5)
        """
        self.write(hooks)
        tests = "".join(f"def test_{name}(): call('policy.py', '/{name}')\n" for name in ("loop", "sleep", "catch", "wait"))
        text = f"from larder.testing import call\n{tests}def test_quick(): assert call('policy.py', '/').ran == ['quick']\n"
        said = self.report(text, hook_seconds=0.2)
        self.assertEqual((said["failed"], said["passed"]), (4, 1), said)
        results = {test["name"]: test for test in said["files"][0]["tests"]}
        for name, line, at in (("loop", 4, "in loop"), ("sleep", 8, "line 10"), ("catch", 11, "line 14"), ("wait", 17, "in wait")):
            with self.subTest(name):
                failure, millis = results[f"test_{name}"]["failure"], results[f"test_{name}"]["millis"]
                self.assertIn(f"policy.py:{line}: {name} took longer than hook_time (200 ms)", failure)
                self.assertIn(at, failure)
                self.assertLess(millis, 5_000)

    def test_the_time_of_a_test_ends_a_hook_that_may_take_longer(self) -> None:
        self.write("import larder\n@larder.request\ndef loop(req):\n    while True: pass\n")
        text = "from larder.testing import call\ndef test_x(): call('policy.py', '/')\n"
        self.write(text, "test_policy.py")
        ran = self.run_tests(seconds=0.3, hook_seconds=5.0)
        self.assertIn("it took longer than 0.3 s", ran.out)

    def test_a_test_that_catches_its_end_has_failed(self) -> None:
        text = """
            import time
            def test_x():
                try:
                    time.sleep(20)
                except BaseException:
                    pass
        """
        self.assertIn("time.sleep(20)", self.failure(text, seconds=0.2))

    def test_code_that_nothing_interrupts_ends_the_process(self) -> None:
        self.write(
            "import signal\ndef test_x():\n    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n    while True: pass\n",
            "test_policy.py",
        )
        ran = self.run_tests(seconds=0.2)
        self.assertIsNone(ran.told)
        self.assertNotEqual(ran.status, 0)
        self.assertIn("line 4 in test_x", ran.err)

    def test_a_test_that_ends_the_process_is_no_success(self) -> None:
        self.write("import os\ndef test_x(): os._exit(0)\n", "test_policy.py")
        ran = self.run_tests()
        self.assertEqual((ran.status, ran.told), (0, None))
        self.assertIn("SystemExit", self.failure("def test_x(): raise SystemExit(0)\n"))

    def test_threads_that_go_on_do_not_keep_the_process(self) -> None:
        text = "import threading, time\ndef test_x(): threading.Thread(target=time.sleep, args=(50,)).start()\n"
        self.assertEqual(self.outcomes(text), {"test_x": "passed"})

    def test_what_tests_print_is_no_part_of_a_report(self) -> None:
        self.write("def test_x(): print('{hello')\n", "test_policy.py")
        ran = self.run_tests(is_json=True)
        self.assertEqual((json.loads(ran.out)["passed"], ran.err), (1, "{hello\n"))


class Assertions(HooksCase):
    def fails(self, statement: str) -> str:
        path = self.write(f"def holds(value, other=2):\n    {statement}\n", "asserting.py")
        module = _asserting.run_module(path, "_asserting_case")
        self.addCleanup(sys.modules.pop, "_asserting_case", None)
        with self.assertRaises(AssertionError) as caught:
            module.holds(1)
        return str(caught.exception)

    def test_each_form(self) -> None:
        self.assertEqual(self.fails("assert value == other"), "left   1\nright  2")
        self.assertEqual(self.fails("assert value in [2, 3], f'not {value}'"), "not 1\nleft   1\nright  [2, 3]")
        self.assertEqual(self.fails("assert not value"), "the value is 1")
        self.assertEqual(self.fails("assert value - 1"), "the value is 0")
        self.assertEqual(self.fails("assert value and value is None"), "left   1\nright  None")
        self.assertEqual(self.fails("assert 1 < value < 3"), "the value is False")
        self.assertIn("differ from character 2 on", self.fails("assert 'abc' == 'abd'"))
        self.assertIn("(9002 characters)", self.fails("assert 'x' * 9000 == ''"))

    def test_a_side_is_evaluated_once(self) -> None:
        text = "calls = []\ndef note():\n    calls.append(1)\n    return 1\ndef run():\n    assert note() == 1 and note() in (1,), note()\n"
        module = _asserting.run_module(self.write(text, "asserting.py"), "_asserting_case")
        self.addCleanup(sys.modules.pop, "_asserting_case", None)
        module.run()
        self.assertEqual(len(module.calls), 2)

    def test_values_without_a_repr(self) -> None:
        path = self.write(
            "class A:\n    def __repr__(self): raise ValueError\ndef holds(): assert A() is None\n", "asserting.py"
        )
        module = _asserting.run_module(path, "_asserting_case")
        self.addCleanup(sys.modules.pop, "_asserting_case", None)
        with self.assertRaisesRegex(AssertionError, r"left   a A whose repr\(\) raises ValueError"):
            module.holds()


class Loaded(HooksCase):
    TEXT = """
        import larder
        calls = 0
        def clock(): return 0
        @larder.request
        def counts(req):
            global calls
            calls += 1
            req.key.add(f"{calls} {clock()}")
    """

    def test_a_loaded_file_keeps_what_it_knows(self) -> None:
        path = self.write(self.TEXT)
        hooks, other = testing.load(path), testing.load(path)
        hooks.module.clock = lambda: 7
        self.assertEqual([testing.call(hooks, "/").key for _ in range(2)], [["1 7"], ["2 7"]])
        self.assertEqual([testing.call(path, "/").key for _ in range(2)], [["1 0"], ["1 0"]])
        self.assertEqual(testing.call(other, "/").key, ["1 0"])
        self.assertEqual(hooks.hooks, ["counts"])
        self.assertIn("policy.py: counts>", repr(hooks))

    def test_a_traceback_shows_the_lines_that_ran_though_the_file_has_changed(self) -> None:
        path = self.write("import larder\n@larder.request\ndef breaks(req):\n    req.query.dorp('a')\n")
        hooks = testing.load(path)
        self.write("import larder\n@larder.request\ndef breaks(req):\n    req.query.drop('a')\n")
        with self.assertRaisesRegex(testing.HookFailed, r"req\.query\.dorp\('a'\)"):
            testing.call(hooks, "/")
        self.assertEqual(testing.call(path, "/").ran, ["breaks"])

    def test_names_are_looked_for_beside_the_test_first(self) -> None:
        self.write(self.TEXT)
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        self.assertEqual(testing.call("policy.py", "/").ran, ["counts"], "the working directory")
        os.mkdir("tests")
        self.write("import larder\n@larder.request\ndef beside(req): pass\n", "tests/policy.py")
        self.write(
            "from larder.testing import call, load\ndef ran(): return call('policy.py', '/').ran + load('policy.py').hooks\n",
            "tests/t.py",
        )
        module = _asserting.run_module(os.path.join(self.folder, "tests", "t.py"), "_loaded_case")
        self.addCleanup(sys.modules.pop, "_loaded_case", None)
        self.assertEqual(module.ran(), ["beside", "beside"])
        with self.assertRaisesRegex(ImportError, "there is no file"):
            testing.call("absent.py", "/")

    def test_files_of_tests_are_about_files_of_hooks(self) -> None:
        path = self.write(self.TEXT)
        for name in ("test_policy.py", "policy_test.py", "policy.py"):
            self.assertEqual(testing.file_of_hooks(os.path.join(self.folder, name)), path)
        with self.assertRaisesRegex(FileNotFoundError, "other.py beside it, and there is none"):
            testing.file_of_hooks(os.path.join(self.folder, "test_other.py"))

    def test_what_a_file_defines_is_not_left_behind(self) -> None:
        known = list(_definitions.registered)
        testing.load(self.write(self.TEXT))
        self.assertEqual(_definitions.registered, known)


class Purges(HooksCase):
    def test_tags_are_purged(self) -> None:
        path = self.write("""
            import larder
            @larder.fetched(method="POST")
            def purge(req, resp):
                resp.purge.tag("list", "article-" + req.headers.get("x-id", "7"))
                resp.purge.tag("list")
        """)
        decision = testing.call(path, "POST /", status=201)
        self.assertEqual((decision.purged_tags, decision.tags, decision.hook), (["list", "article-7"], [], "purge"))
        for bad in ("a b", "a,b", "\u00e9"):
            with self.assertRaisesRegex(testing.HookFailed, "is no tag"):
                testing.call(path, "POST /", status=201, headers=[("x-id", bad)])


class UnderPytest(RunnerCase):
    def test_the_same_files_run_under_pytest(self) -> None:
        if importlib.util.find_spec("pytest") is None:
            self.skipTest("pytest is not installed")
        self.write(HOOKS)
        self.write(
            "from larder.testing import call\n"
            "def test_call(): assert call('policy.py', '/shop/?utm_a=1').query is None\n"
            "def test_fixture(hooks): assert call(hooks, '/shop/').ran == ['plans']\n"
            "class TestA:\n    def test_x(self, hooks): assert hooks.hooks == ['plans', 'keep']\n",
            "test_policy.py",
        )
        self.assertEqual(self.run_tests().status, 0)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "larder.testing", "-p", "no:cacheprovider", "test_policy.py"]
        done = subprocess.run(
            command, cwd=self.folder, env={**os.environ, "PYTHONPATH": ROOT}, capture_output=True, text=True, timeout=60
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("3 passed", done.stdout)


if __name__ == "__main__":
    signal.alarm(300)
    unittest.main()
