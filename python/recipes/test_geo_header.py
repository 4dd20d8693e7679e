from larder.testing import call


def country(client, **headers):
    return dict(call("geo_header.py", "GET http://shop.example/", client=client, headers=headers).set)["x-country"]


def test_the_smallest_network_counts():
    assert country("198.51.100.1") == "de"
    assert country("198.51.100.200") == "ch"
    assert country("2001:db8:a::7") == "at"


def test_an_address_of_the_other_family_is_the_same_client():
    assert country("::ffff:192.0.2.9") == "at"


def test_unknown_addresses_have_a_word_too():
    assert country("203.0.113.1") == "zz"
    assert country("::1") == "zz"


def test_a_client_does_not_choose_its_country():
    forged = {"x-country": "ch", "x-forwarded-for": "198.51.100.200"}
    decision = call("geo_header.py", "GET http://shop.example/", client="192.0.2.1", headers=forged)
    assert decision.set == [("x-country", "at")]
    assert decision.read == ["client"]
