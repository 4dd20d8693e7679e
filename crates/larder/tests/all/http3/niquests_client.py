"""Asks a server by niquests, which learns of HTTP/3 by Alt-Svc. Arguments: the port, the certificate that is trusted."""

import sys

import niquests

port, certificate = sys.argv[1], sys.argv[2]
with niquests.Session() as session:
    # Else a bundle of certificates that the environment names would be trusted in place of this one.
    session.trust_env = False
    session.verify = certificate
    url = f"https://localhost:{port}/fresh?niquests"
    versions = [session.get(url).http_version for _ in range(3)]
    assert versions[0] in (11, 20) and versions[-1] == 30, versions
    print("HTTP/3 after a first answer over TCP")
    answers = [session.get(f"https://localhost:{port}/echo/{number}") for number in range(200)]
    assert all(answer.http_version == 30 for answer in answers)
    assert all(answer.text.startswith(f"GET /echo/{number} ") for number, answer in enumerate(answers))
    print("two hundred objects")
    answer = session.post(f"https://localhost:{port}/sum", data=b"n" * 300_000)
    assert (answer.http_version, answer.text.split()[0]) == (30, "300000"), (answer.http_version, answer.text)
    print("a body")
