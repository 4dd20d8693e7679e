from larder.testing import call, load


class Play:
    """The hooks, and a clock that stands still until it is set."""

    def __init__(self, **settings):
        self.hooks = load("rate_limit.py")
        self.now = 1000.0
        self.hooks.module.monotonic = lambda: self.now
        for name, value in settings.items():
            setattr(self.hooks.module, name, value)

    def ask(self, client="192.0.2.1", **headers):
        response = call(self.hooks, "GET http://shop.example/", client=client, headers=headers).response
        return 200 if response is None else response.status

    def many(self, number, client="192.0.2.1"):
        return [self.ask(client) for _ in range(number)]


def test_a_burst_passes_and_then_it_is_too_much():
    play = Play()
    assert play.many(20) == [200] * 20
    assert play.many(2) == [429, 429]


def test_the_bucket_fills_up_again():
    play = Play()
    play.many(25)
    play.now += 1.0
    assert play.many(6) == [200] * 5 + [429]
    play.now += 1000.0
    assert play.many(21) == [200] * 20 + [429]


def test_the_answer_says_how_long_to_wait():
    play = Play(PER_SECOND=0.1)
    play.many(20)
    response = call(play.hooks, "GET http://shop.example/").response
    assert ("retry-after", "11") in response.headers


def test_clients_do_not_pay_for_each_other():
    play = Play()
    play.many(30)
    assert play.ask("192.0.2.2") == 200


def test_other_addresses_of_one_network_are_one_client():
    play = Play()
    asked = [play.ask(f"2001:db8:1:2:{number:x}::1") for number in range(21)]
    assert asked == [200] * 20 + [429]
    assert play.ask("2001:db8:1:3::1") == 200
    assert play.ask("::ffff:192.0.2.1") == play.ask("::ffff:192.0.2.2") == 200


def test_a_field_makes_nobody_another_client():
    play = Play()
    play.many(20)
    assert play.ask("192.0.2.1", **{"x-forwarded-for": "203.0.113.9"}) == 429


def test_many_clients_take_bounded_memory():
    play = Play(CLIENTS_MAX=10)
    for number in range(100):
        play.ask(f"198.51.100.{number}")
    assert len(play.hooks.module.buckets) == 10


def test_a_client_that_goes_on_is_not_forgotten_for_others():
    play = Play(CLIENTS_MAX=10)
    play.many(20)
    for number in range(30):
        play.ask(f"198.51.100.{number}")
        play.ask()
    assert play.ask() == 429
