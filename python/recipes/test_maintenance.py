import os
import tempfile

from larder.testing import call, load


def site(is_on=True):
    hooks = load("maintenance.py")
    # A file of its own: the one of the running site is not touched.
    with tempfile.NamedTemporaryFile(delete=False) as flag:
        hooks.module.FLAG = flag.name
    if not is_on:
        os.remove(flag.name)
    return hooks


def play(hooks, request="GET http://shop.example/", **facts):
    try:
        return call(hooks, request, **facts)
    finally:
        if os.path.exists(hooks.module.FLAG):
            os.remove(hooks.module.FLAG)


def test_without_the_file_nothing_happens():
    assert play(site(is_on=False), client="203.0.113.1").changes == {}


def test_the_page_says_when_to_come_back():
    response = play(site(), client="203.0.113.1").response
    assert response.status == 503
    assert ("retry-after", "600") in response.headers
    assert ("cache-control", "no-store") in response.headers


def test_all_methods_and_paths_get_it():
    for request in ("POST /cart", "DELETE /x", "GET /robots.txt", "OPTIONS /"):
        assert play(site(), request, client="203.0.113.1").response.status == 503


def test_staff_sees_the_origin_and_leaves_nothing_behind():
    decision = play(site(), client="192.0.2.5")
    assert decision.response is None
    assert decision.passed


def test_a_field_makes_nobody_staff():
    forged = {"x-forwarded-for": "127.0.0.1", "x-real-ip": "192.0.2.5", "forwarded": "for=127.0.0.1"}
    assert play(site(), client="203.0.113.1", headers=forged).response.status == 503
    assert play(site(), client="192.0.2.16").response.status == 503
