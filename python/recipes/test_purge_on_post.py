from larder.testing import call


def play(request, status):
    return call("purge_on_post.py", request, status=status)


def test_pages_that_show_articles_carry_the_tag():
    for path in ("/", "/articles", "/articles/7", "/articles/7/comments"):
        assert play(f"GET {path}", 200).tags == ["articles"]
    assert play("GET /help", 200).ran == []
    assert play("GET /articles/8", 404).tags == []


def test_a_change_that_succeeded_purges_them():
    for method, status in (("POST", 201), ("POST", 303), ("PUT", 204), ("PATCH", 200), ("DELETE", 204)):
        assert play(f"{method} /articles/7", status).purged_tags == ["articles"]


def test_a_change_that_was_refused_purges_nothing():
    for status in (400, 401, 403, 404, 409, 422, 429, 500, 503):
        assert play("POST /articles", status).purged_tags == []


def test_a_stranger_purges_nothing():
    for request, status in (
        ("GET /articles/7?purge=1", 200),
        ("PURGE /articles/7", 200),
        ("POST /login", 303),
        ("HEAD /", 200),
    ):
        assert play(request, status).purged_tags == []
