from larder.testing import call, load

PAGE = "GET http://shop.example/shop/page"


def group(client="192.0.2.1", **headers):
    (name, value), *others = call("ab_key.py", PAGE, client=client, headers=headers).set
    assert name == "x-group" and not others
    return value


def test_a_visitor_stays_in_a_group():
    assert len({group("192.0.2.7") for _ in range(5)}) == 1
    assert call("ab_key.py", "GET http://shop.example/help").ran == []


def test_the_shares_hold():
    group_of = load("ab_key.py").module.group_of
    groups = [group_of(f"192.0.{number // 256}.{number % 256}") for number in range(5000)]
    assert 0.17 < groups.count("b") / len(groups) < 0.23


def test_the_cookie_chooses_among_the_groups():
    assert group(cookie="x=1; group=a") == "a"
    assert group(cookie="group=b") == "b"


def test_nobody_makes_a_group_of_his_own():
    for value in ("c", "", "A", "a b", "a,b", "b" * 4000):
        assert group(cookie=f"group={value}") == group()
    forged = {"x-group": "vip"}
    assert call("ab_key.py", PAGE, headers=forged).set == [("x-group", group())]


def test_a_remembered_group_depends_on_cookie_and_client_alone():
    assert set(call("ab_key.py", PAGE).read) <= {"field:cookie", "client"}
