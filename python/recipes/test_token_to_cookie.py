from larder.testing import call

TOKEN = "0123456789abcdef"


def answer(request):
    return call("token_to_cookie.py", request).response


def test_the_token_becomes_a_cookie():
    response = answer(f"GET https://shop.example/a?x=1&token={TOKEN}&y=%C3%A9")
    headers = dict(response.headers)
    assert response.status == 303
    assert headers["location"] == "/a?x=1&y=%C3%A9"
    assert headers["set-cookie"] == f"token={TOKEN}; Path=/; Max-Age=28800; HttpOnly; SameSite=Lax; Secure"
    assert headers["cache-control"] == "no-store"


def test_without_a_token_nothing_happens():
    assert call("token_to_cookie.py", "GET https://shop.example/a?x=1&atoken=2").changes == {}
    assert "Secure" not in dict(answer(f"GET http://shop.example/?token={TOKEN}").headers)["set-cookie"]


def test_a_token_that_would_be_more_than_a_value_is_refused():
    for token in ("short", "", f"{TOKEN};%20Domain=evil.example", f"{TOKEN}%0d%0aSet-Cookie:%20a=b", f"{TOKEN}%00", "x" * 513):
        assert answer(f"GET https://shop.example/?token={token}").status == 400


def test_of_two_tokens_none_is_taken():
    assert answer(f"GET https://shop.example/?token={TOKEN}&%74oken={TOKEN}x").status == 400


def test_the_redirect_leads_to_no_other_host():
    for path in ("//evil.example/", "///evil.example", "/\\evil.example", "//evil.example:80/a"):
        location = dict(answer(f"GET https://shop.example{path}?token={TOKEN}").headers)["location"]
        assert location.startswith("/")
        assert location[1] not in "/\\"
