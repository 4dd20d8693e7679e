"""Hooks of stored responses and of answers: `found` and `respond`."""

import unittest
from typing import Any, Callable, Dict, List, Tuple

from hooks_double import HooksCase, call, frame, split

import larder
from larder import _calls, _definitions

FIELDS = (("server", "o"), ("set-cookie", "a=1"), ("set-cookie", "b=2"))


def run(stage: str, hook: Callable[..., Any], found: Tuple[Any, ...] = (70, -10, 1, ("api", "n")), **facts: Any) -> Dict[str, Any]:
    """Run one hook, and return what it says."""
    errors: List[BaseException] = []

    def report(name: str, method: str, target: str, error: BaseException) -> str:
        errors.append(error)
        return str(error)

    with _definitions.collected() as hooks:
        getattr(larder, stage)(hook)
    payload = call(stage, status=200, response_fields=FIELDS, **facts)
    if stage == "found":
        payload = (*payload, found)
    data, is_sound = _calls.Frames(_calls.Calls(hooks, report)).feed(frame(1, payload))
    assert is_sound
    if errors:
        raise errors[0]
    return split(data)[0].said


class Found(unittest.TestCase):
    def test_facts_and_what_is_noted_of_them(self) -> None:
        cases: List[Tuple[Callable[[Any], Any], Any, List[str]]] = [
            (lambda found: found.age, 70, ["found:age"]),
            (lambda found: found.ttl, -10, ["found:ttl"]),
            (lambda found: found.stale, True, ["found:stale"]),
            (lambda found: found.tags, ("api", "n"), ["found:tags"]),
            (lambda found: found.status, 200, ["status"]),
            (lambda found: found.headers.get("Server"), "o", ["response:server"]),
            (lambda found: found.headers.getall("set-cookie"), ["a=1", "b=2"], ["response:set-cookie"]),
        ]
        for look, wanted, read in cases:
            with self.subTest(read=read):
                seen: List[Any] = []
                said = run("found", lambda req, found, look=look, seen=seen: seen.append(look(found)))
                self.assertEqual((seen, said), ([wanted], {"read": read}))

    def test_decisions(self) -> None:
        self.assertIs(run("found", lambda req, found: larder.miss())["miss"], True)
        self.assertIs(run("found", lambda req, found: larder.pass_())["pass"], True)
        self.assertEqual(run("found", lambda req, found: larder.deny("no"))["respond"]["status"], 403)
        self.assertEqual(run("found", lambda req, found: larder.redirect("/x"))["respond"]["status"], 302)
        self.assertEqual(run("found", lambda req, found: None), {})

    def test_nothing_that_is_stored_can_be_changed(self) -> None:
        def change(act: Callable[[Any, Any], Any]) -> Callable[..., Any]:
            return lambda req, found: (act(req, found), None)[1]

        for act in (
            lambda req, found: found.headers.set("x-a", "1"),
            lambda req, found: found.headers.add("x-a", "1"),
            lambda req, found: found.headers.remove("server"),
            lambda req, found: req.headers.set("x-a", "1"),
            lambda req, found: req.key.add("a"),
            lambda req, found: setattr(req, "path", "/x"),
            lambda req, found: setattr(req, "route", "b"),
            lambda req, found: setattr(found, "age", 1),
        ):
            with self.assertRaises(AttributeError):
                run("found", change(act))
        for value in ("text", True, 5):
            with self.assertRaisesRegex(TypeError, "a found hook may return None"):
                run("found", lambda req, found, value=value: value)


class Respond(unittest.TestCase):
    def test_fields_are_changed(self) -> None:
        def stamp(req: larder.Request, resp: larder.Answer) -> None:
            resp.headers["X-For"] = req.client
            resp.headers.add("set-cookie", "c=3")
            del resp.headers["server"]

        said = run("respond", stamp)
        self.assertEqual(
            (said["response_set"], said["response_remove"]),
            ([["x-for", "192.0.2.1"], ["set-cookie", "a=1"], ["set-cookie", "b=2"], ["set-cookie", "c=3"]], ["server"]),
        )
        self.assertEqual(said["read"], ["client", "response:set-cookie"])

    def test_fields_that_are_not_the_hook_s(self) -> None:
        for name in ("Content-Length", "connection", "age", "etag", "content-encoding", "date"):
            for act in (
                lambda resp, name=name: resp.headers.set(name, "1"),
                lambda resp, name=name: resp.headers.add(name, "1"),
                lambda resp, name=name: resp.headers.remove(name),
            ):
                with self.assertRaisesRegex(ValueError, f"the field '{name.lower()}' is"):
                    run("respond", lambda req, resp, act=act: act(resp))
        run("fetched", lambda req, resp: resp.headers.remove("etag"))
        with self.assertRaisesRegex(ValueError, "the field 'content-length' is Larder's"):
            larder.Response("a", headers={"content-length": "1"})

    def test_nothing_else(self) -> None:
        for value in (larder.pass_(), larder.deny(), larder.miss(), "text"):
            with self.assertRaisesRegex(TypeError, "a respond hook changes resp.headers"):
                run("respond", lambda req, resp, value=value: value)
        for name in ("ttl", "grace", "status", "body"):
            with self.assertRaises(AttributeError):
                run("respond", lambda req, resp, name=name: setattr(resp, name, 1))
        with self.assertRaisesRegex(AttributeError, "a respond hook can't change the request"):
            run("respond", lambda req, resp: req.headers.set("x-a", "1"))


class Others(unittest.TestCase):
    def test_a_miss_is_for_found_hooks(self) -> None:
        with self.assertRaisesRegex(TypeError, "is for @larder.found hooks"):
            run("fetched", lambda req, resp: larder.miss())

    def test_parameters(self) -> None:
        for stage, wanted in (("found", "(req, found)"), ("respond", "(req, resp)")):
            with _definitions.collected(), self.assertRaises(TypeError) as caught:
                getattr(larder, stage)(lambda req: None)
            self.assertIn(f"{wanted}", str(caught.exception))


class Broken(HooksCase):
    def test_facts_of_a_stored_response_are_there_or_the_connection_ends(self) -> None:
        with _definitions.collected() as hooks:
            larder.found(lambda req, found: None)
            larder.request(lambda req: None)
        calls = _calls.Calls(hooks, lambda *_: "")
        good = (*call("found", (0,)), (1, 2, 0, ()))
        for bad in (
            call("found", (0,)),
            (*call("request", (1,)), (1, 2, 0, ())),
            (*call("found", (0,)), (1, 2, 0)),
            (*call("found", (0,)), (1, 2, 0, (5,))),
            (*call("found", (0,)), ("1", 2, 0, ())),
            (*good, 1),
        ):
            data, is_sound = _calls.Frames(calls).feed(frame(1, bad))
            self.assertEqual((data, is_sound), (b"", False), bad)
        self.assertTrue(_calls.Frames(calls).feed(frame(1, good))[1])
