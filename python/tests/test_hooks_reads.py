"""Larder keeps decisions under what the hooks read: requests that are equal in all of it have to get the same reply."""

import json
import random
import unittest
from typing import Any, Callable, Dict, List, Tuple

from hooks_double import call, frame

import larder
from larder import _definitions
from larder._calls import Calls, Frames, text_of_reply

Facts = Dict[str, Any]
Step = Callable[[larder.Request], Any]
Fields = Tuple[Tuple[str, str], ...]

NAMES = ("x-a", "x-b", "cookie", "accept")
PROGRAMS = 400
PAIRS = 8

READS: List[Step] = [
    lambda req: req.method,
    lambda req: req.scheme,
    lambda req: req.host,
    lambda req: req.port,
    lambda req: req.path,
    lambda req: req.url.path,
    lambda req: req.client,
    lambda req: req.name,
    lambda req: str(req.url),
    lambda req: repr(req),
    lambda req: req.query.get("a"),
    lambda req: req.query.getall("b"),
    lambda req: "a" in req.url.query,
    lambda req: str(req.query),
    lambda req: len(req.query),
    lambda req: req.headers.get("X-A", "free"),
    lambda req: req.headers.getall("x-b"),
    lambda req: "x-b" in req.headers,
    lambda req: dict(req.cookies),
    lambda req: req.cookies.get("s"),
    lambda req: req.headers.items(),
    lambda req: list(req.headers),
    lambda req: len(req.headers),
    lambda req: bool(req.headers),
    lambda req: repr(req.headers),
    lambda req: req.headers == req.headers,
    lambda req: req.route,
]

CHANGES: List[Step] = [
    lambda req: setattr(req, "path", "/set"),
    lambda req: req.query.set("a", "9"),
    lambda req: req.query.add("c", "1"),
    lambda req: req.query.drop("a"),
    lambda req: req.query.drop("utm_*", "b"),
    lambda req: req.query.sort(),
    lambda req: req.query.clear(),
    lambda req: req.query.__delitem__("b"),
    lambda req: req.headers.set("x-a", "set"),
    lambda req: req.headers.add("X-B", "added"),
    lambda req: req.headers.add("accept", "added"),
    lambda req: req.headers.remove("x-b"),
    lambda req: req.headers.__delitem__("cookie"),
    lambda req: req.headers.set("cookie", "s=set"),
    lambda req: setattr(req, "route", "b"),
    lambda req: req.key.add("k"),
]

RESPONSE_READS: List[Callable[[larder.FetchedResponse], Any]] = [
    lambda resp: resp.status,
    lambda resp: repr(resp),
    lambda resp: resp.headers.get("x-a"),
    lambda resp: resp.headers.getall("x-b"),
    lambda resp: resp.headers.items(),
    lambda resp: resp.headers.add("x-b", "added"),
    lambda resp: resp.headers.set("x-a", "set"),
    lambda resp: resp.ttl,
    lambda resp: setattr(resp, "ttl", 5),
]


def program(chance: random.Random, stage: str) -> Callable[..., Any]:
    """Make a hook whose steps depend on what it read before, and which tells all of it."""
    seed = chance.random()

    def hook(req: larder.Request, resp: Any = None) -> Any:
        seen: List[Any] = []
        for _ in range(6):
            # The choice is the same for the same values, and another one for others.
            choice = random.Random(f"{seed} {seen!r}")
            if resp is not None and choice.random() < 0.6:
                seen.append(choice.choice(RESPONSE_READS)(resp))
            elif resp is None and choice.random() < 0.4:
                seen.append(choice.choice(CHANGES)(req))
            else:
                seen.append(choice.choice(READS)(req))
        if resp is not None:
            resp.headers["x-seen"] = repr(seen)
            return larder.pass_() if choice.random() < 0.2 else None
        req.key.add(repr(seen))
        return larder.Response(repr(seen)) if choice.random() < 0.2 else None

    return hook


def random_fields(chance: random.Random) -> Fields:
    values = ("1", "2", "s=1; t=2", "s=2", "")
    return tuple((chance.choice(NAMES), chance.choice(values)) for _ in range(chance.randrange(5)))


def random_facts(chance: random.Random, stage: str) -> Facts:
    facts: Facts = {
        "method": chance.choice(("GET", "HEAD", "POST")),
        "scheme": chance.choice(("http", "https")),
        "host": chance.choice(("a.example", "b.example")),
        "port": chance.choice((80, 443, 8080)),
        "path": chance.choice(("/", "/a", "/set")),
        "query": chance.choice((None, "", "a=1", "b=2&a=1", "a=9", "c=1", "b=1&b=2&utm_x=1")),
        "client": chance.choice(("192.0.2.1", "192.0.2.2")),
        "name": str(chance.random()),
        "fields": random_fields(chance),
    }
    if stage == "fetched":
        facts.update(status=chance.choice((200, 404)), response_fields=random_fields(chance))
    return facts


def with_the_same(read: List[str], facts: Facts, other: Facts) -> Facts:
    """Return `other` with those facts that were read."""
    mixed = dict(other)
    for fact in read:
        kind, colon, name = fact.partition(":")
        if not colon:
            mixed[kind] = facts[kind]
            continue
        member = "fields" if kind == "field" else "response_fields"
        if name == "*":
            mixed[member] = facts[member]
        elif f"{kind}:*" not in read:
            same = tuple(pair for pair in facts[member] if pair[0] == name)
            mixed[member] = tuple(pair for pair in mixed[member] if pair[0] != name) + same
    return mixed


class Reads(unittest.TestCase):
    def check(self, stage: str, seed: int) -> int:
        chance = random.Random(seed)
        with _definitions.collected() as hooks:
            for _ in range(chance.choice((1, 1, 2))):
                hook = program(chance, stage)
                (larder.fetched if stage == "fetched" else larder.request)(hook)

        def report(name: str, method: str, target: str, error: BaseException) -> str:
            raise error

        frames = Frames(Calls(hooks, report))
        indexes = tuple(range(len(hooks)))

        def reply(facts: Facts) -> bytes:
            data, is_sound = frames.feed(frame(0, call(stage, indexes, **facts)))
            self.assertTrue(is_sound)
            return text_of_reply(data)

        differing = 0
        for _ in range(PAIRS):
            facts, other = random_facts(chance, stage), random_facts(chance, stage)
            first = reply(facts)
            text = first.decode()
            if '"ambiguous":' in text:
                # No decision, so that none is remembered.
                continue
            read = [] if '"read":' not in text else json.loads(text)["read"]
            mixed = with_the_same(read, facts, other)
            differing += mixed != facts
            self.assertEqual(first, reply(mixed), f"{facts}\n{mixed}")
        return differing

    def test_equal_in_what_was_read_is_equal_in_the_reply(self) -> None:
        for stage in ("request", "fetched"):
            differing = 0
            for seed in range(PROGRAMS):
                with self.subTest(stage=stage, seed=seed):
                    differing += self.check(stage, seed)
            # Most pairs have to differ in something that was not read, else the test tells nothing.
            self.assertGreater(differing, PROGRAMS * PAIRS * 9 // 10)


if __name__ == "__main__":
    unittest.main()
