from larder.testing import call, load

FILE = "http://shop.example/media/2026/a.png"


def status(request, **headers):
    response = call("object_store.py", request, headers=headers).response
    return None if response is None else response.status


def test_a_path_becomes_that_of_an_object():
    decision = call("object_store.py", f"GET {FILE}")
    assert decision.response is None
    assert decision.path == "/shop-files/media/2026/a.png"


def test_what_is_the_clients_stays_here():
    hidden = {"cookie": "session=1", "authorization": "Basic x", "origin": "http://evil.example", "accept": "*/*"}
    hooks = load("object_store.py")
    hooks.module.SECRET = ""
    decision = call(hooks, f"GET {FILE}", headers=hidden)
    assert set(decision.removed) == {"cookie", "authorization", "referer", "origin"}


def test_the_secret_is_the_operators():
    hooks = load("object_store.py")
    hooks.module.SECRET = "s3cret"
    decision = call(hooks, f"GET {FILE}", headers={"referer": "guess"})
    assert decision.set == [("referer", "s3cret")]


def test_no_parameter_reaches_the_bucket():
    for query in ("acl", "list-type=2", "versions", "X-Amz-Signature=1", "response-content-type=text/html", "a=1&b"):
        assert call("object_store.py", f"GET {FILE}?{query}").query is None


def test_no_path_leaves_the_folder_or_lists_it():
    for path in ("/media", "/media/", "/media/a/", "/media//a", "/media/../x", "/media/a/../../x", "/media/.", "/media/..",
                 "/media/%2e%2e/x", "/media/a%2fb", "/media/a%00", "/media/./a", "/media/a;b", "/media/a\\b"):  # fmt: skip
        assert status(f"GET http://shop.example{path}") == 404


def test_nobody_writes():
    for method in ("PUT", "POST", "DELETE", "PATCH", "COPY"):
        assert status(f"{method} {FILE}") == 405


def test_files_live_long_and_say_nothing_of_the_bucket():
    told = {"x-amz-id-2": "1", "x-amz-request-id": "2", "x-goog-hash": "3", "content-type": "image/png"}
    decision = call("object_store.py", "GET http://shop.example/shop-files/media/a.png", status=200, response_headers=told)
    assert (decision.ttl, decision.grace) == (86400, 604800)
    assert decision.response_removed == ["x-amz-id-2", "x-amz-request-id", "x-goog-hash"]
