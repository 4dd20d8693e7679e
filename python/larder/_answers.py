"""What hooks of stored responses and of answers get: `Found` and `Answer`."""

from types import FrameType
from typing import NoReturn, Tuple

from ._messages import Request, ResponseHead
from ._views import Mark


def _refuse_change(_: FrameType) -> NoReturn:
    raise AttributeError(
        "a found hook can't change a stored response, which others get too: change the fields for this client in a"
        " @larder.respond hook, those of all in a @larder.fetched hook"
    )


class Found(ResponseHead):
    """A stored response that is about to be used. Nothing of it can be changed."""

    __slots__ = ("_facts",)

    _stage = "found"

    def __init__(self, request: Request, facts: Tuple[int, int, int, Tuple[str, ...]]) -> None:
        super().__init__(request)
        self._facts = facts

    def _mark_of_fields(self) -> Mark:
        return _refuse_change

    @property
    def age(self) -> int:
        """Its age in seconds. It changes, so that nothing is remembered after it was read; that holds for `ttl` too."""
        self._request._reads["found:age"] = None
        return self._facts[0]

    @property
    def ttl(self) -> int:
        """Seconds for which it is fresh still; below 0 since when it has been stale."""
        self._request._reads["found:ttl"] = None
        return self._facts[1]

    @property
    def stale(self) -> bool:
        """Whether it is past its lifetime, and used while a new one is fetched or because the client takes it so."""
        self._request._reads["found:stale"] = None
        return bool(self._facts[2])

    @property
    def tags(self) -> Tuple[str, ...]:
        """The tags that its origin or a hook gave it."""
        self._request._reads["found:tags"] = None
        return self._facts[3]

    def __repr__(self) -> str:
        return f"<larder.Found {self.status}, {self._facts[0]} s old>"


class Answer(ResponseHead):
    """The head of an answer on its way to one client. Changes are for this client alone: what is stored stays as it is.

    Fields of the connection, of the body and of conditions can't be changed.
    """

    __slots__ = ()

    _stage = "respond"

    def __repr__(self) -> str:
        return f"<larder.Answer {self.status}>"
