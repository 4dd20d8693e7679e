from larder.testing import call

PAGE = "GET http://shop.example/absent"


def ttl(status, request=PAGE, **fields):
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    return call("negative_caching.py", request, status=status, response_headers=headers).ttl


def test_refusals_have_short_lifetimes():
    assert ttl(404) == 30
    assert ttl(410) == 600
    assert ttl(503) == ttl(502) == ttl(504) == 2


def test_what_the_origin_says_counts():
    assert ttl(404, cache_control="max-age=5") is None
    assert ttl(404, cache_control="no-store") is None
    assert ttl(503, expires="0") is None


def test_what_one_client_may_have_caused_is_not_kept_for_others():
    for status in (200, 301, 400, 401, 403, 405, 413, 414, 431, 500, 501):
        assert ttl(status) is None


def test_answers_to_other_methods_are_left_alone():
    assert ttl(404, "POST http://shop.example/absent") is None
