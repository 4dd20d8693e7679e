from larder.testing import call

PAGE = "GET http://shop.example/page"


def test_what_campaigns_add_is_left_out():
    assert call("strip_parameters.py", f"{PAGE}?utm_source=x&id=1&fbclid=y&_gl=z").query == "id=1"
    assert call("strip_parameters.py", f"{PAGE}?utm_source=x").query is None


def test_all_else_stays_as_it_is():
    for query in ("id=1", "b=2&a=1", "a=%31&a=2", "a", "autm_source=x", "utm=1", "a=utm_source"):
        decision = call("strip_parameters.py", f"{PAGE}?{query}")
        assert decision.query == query
        assert decision.changes == {}


def test_other_spellings_of_a_name_are_left_out_too():
    for name in ("%75tm_source", "utm%5Fsource", "utm_", "utm_%00"):
        assert call("strip_parameters.py", f"{PAGE}?{name}=x&id=1").query == "id=1"


def test_a_form_that_is_sent_keeps_its_parameters():
    assert call("strip_parameters.py", "POST http://shop.example/page?utm_source=x").ran == []
