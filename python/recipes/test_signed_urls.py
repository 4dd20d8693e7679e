from larder.testing import call, load

NOW = 1_700_000_000
HOST, PATH = "shop.example", "/private/film.mp4"


def signer():
    hooks = load("signed_urls.py")
    hooks.module.KEY = b"0123456789abcdef0123456789abcdef"
    hooks.module.time = lambda: float(NOW)
    return hooks


def play(hooks, query, path=PATH, method="GET", host=HOST):
    return call(hooks, f"{method} http://{host}{path}?{query}")


def test_a_signed_link_is_answered_until_it_ends():
    hooks = signer()
    link = hooks.module.sign(HOST, PATH, "", NOW + 60)
    decision = play(hooks, link)
    assert decision.response is None
    assert decision.query is None
    hooks.module.time = lambda: NOW + 60.0
    assert play(hooks, link).response.status == 410


def test_other_parameters_are_signed_and_stay():
    hooks = signer()
    link = hooks.module.sign(HOST, PATH, "size=1&a=%C3%A9", NOW + 60)
    assert play(hooks, link).query == "size=1&a=%C3%A9"
    assert play(hooks, link.replace("size=1", "size=2")).response.status == 403
    assert play(hooks, f"{link}&more=1").response.status == 403


def test_a_signature_holds_for_one_url():
    hooks = signer()
    link = hooks.module.sign(HOST, PATH, "", NOW + 60)
    assert play(hooks, link, path="/private/other.mp4").response.status == 403
    assert play(hooks, link, host="other.example").response.status == 403
    assert play(hooks, link.replace(str(NOW + 60), str(NOW + 9999))).response.status == 403


def test_wrong_and_doubled_parameters_are_refused():
    hooks = signer()
    good = hooks.module.sign(HOST, PATH, "", NOW + 60)
    ends = f"expires={NOW + 60}"
    for query in ("", "a=1", ends, "signature=", f"{ends}&signature=", f"{ends}&signature=%C3%A9", f"{good}&{ends}",
                  f"expires=-1&{good}", f"{good}&signature=0", "expires=nan&signature=0", "expires=%D9%A1&signature=0"):  # fmt: skip
        assert play(hooks, query).response.status == 403


def test_no_method_and_no_hit_goes_around():
    hooks = signer()
    for method in ("HEAD", "POST", "DELETE", "PROPFIND"):
        assert play(hooks, "", method=method).response.status == 403
    # Without `remember` the hook is asked at each request, also where the film is stored.
    assert all(hook.remember_ms is None for hook in hooks._hooks)


def test_without_a_key_nothing_is_signed_or_shown():
    hooks = signer()
    link = hooks.module.sign(HOST, PATH, "", NOW + 60)
    hooks.module.KEY = b""
    for attempt in (lambda: play(hooks, link), lambda: hooks.module.sign(HOST, PATH, "", NOW + 60)):
        try:
            attempt()
        except Exception as error:
            assert "signed_urls.key" in str(error)
        else:
            raise AssertionError("a link without a key")
