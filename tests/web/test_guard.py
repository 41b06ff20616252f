"""Who may see and change something: the token, the cookie, foreign sites, foreign names."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dbdyno.model.errors import UsageError
from dbdyno.web.address import listening
from dbdyno.web.connections import MOST
from tests.web.conftest import Lab


def test_a_token_opens_once_and_the_next_one_is_printed_then(lab: Lab) -> None:
    path = lab.printed[0].removeprefix(lab.address.url)
    first = lab.ask(path)
    assert first.status == 303 and first.headers["location"] == "/"
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Secure" not in cookie
    assert lab.ask(path).status == 401 and len(lab.printed) == 2
    assert lab.ask(lab.printed[1].removeprefix(lab.address.url)).status == 303


@pytest.mark.parametrize("path", ["/", "/run/last", "/nothing", "/?token=wrong", "/?token=%ff"])
def test_without_a_cookie_nothing_is_seen_not_even_what_exists(lab: Lab, path: str) -> None:
    answer = lab.ask(path)
    assert answer.status == 401 and "set-cookie" not in answer.headers
    assert str(lab.store) not in answer.text and lab.printed[-1].partition("=")[2] not in answer.text
    assert answer.text == lab.ask("/").text


def test_a_cookie_of_another_server_does_not_open(lab: Lab) -> None:
    assert lab.ask("/run/last", Cookie=f"dbdyno-{lab.address.port}=AAAA").status == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 404),  # the port of a tunnel
        ("localhost:8431", 404),
        ("[::1]:8431", 404),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:8431", 421),
        ("192.168.1.9", 421),  # not an address that this server listens on
        ("localhost@evil.example", 421),
        ("", 421),
    ],
)
def test_a_name_that_is_not_ours_is_refused(lab: Lab, host: str, status: int) -> None:
    assert lab.enter().ask("/run/last", Host=host).status == status


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "http://127.0.0.1:1", "http://localhost", "http://["]
)
def test_only_a_page_of_this_server_may_change_something(lab: Lab, origin: str) -> None:
    assert lab.enter().post("/run/last", Origin=origin).status == 403
    assert lab.post("/run/last").status == 405  # passed, and nothing is changed there


def test_other_methods_and_long_bodies_are_refused(lab: Lab) -> None:
    lab.enter()
    assert lab.ask("/", "PUT", b"").status == 405
    assert lab.ask("/", "DELETE").status == 405
    assert lab.post("/", b"x" * (1 << 20) + b"x").status == 413


def test_every_answer_forbids_frames_foreign_code_and_copies(lab: Lab) -> None:
    for answer in (lab.ask("/run/last"), lab.enter().ask("/run/last"), lab.ask("/", Host="evil.example")):
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
    policy = lab.ask("/run/last").text.partition("Content-Security-Policy")[2].partition(">")[0]
    assert "default-src &#x27;none&#x27;" in policy and "unsafe" not in policy


def test_a_link_on_another_site_leads_on_with_a_click(lab: Lab) -> None:
    answer = lab.ask("/run/last?x=1", Sec_Fetch_Site="cross-site")
    assert answer.status == 401 and 'href="/run/last?x=1"' in answer.text


@pytest.mark.parametrize("path", ["//evil.example/steal", "/\\evil.example/steal", "///evil.example/steal"])
def test_no_address_leads_to_another_host(lab: Lab, path: str) -> None:
    assert 'href="/evil.example/steal"' in lab.ask(path, Sec_Fetch_Site="cross-site").text
    answer = lab.enter().ask(f"{path}?token=x&save=1")
    assert answer.headers["location"] == "/evil.example/steal?save=1"


def test_who_sends_nothing_keeps_nobody_out(lab: Lab) -> None:
    lab.enter()
    silent = [socket.create_connection(("127.0.0.1", lab.address.port)) for _ in range(MOST + 20)]
    silent[-1].sendall(b"GET / HT")
    assert lab.ask("/").status == 200
    silent[0].settimeout(60)
    assert silent[0].recv(1) == b"", "the oldest made room"
    for one in silent:
        one.close()


def test_a_missing_run_is_named_with_the_cure(lab: Lab) -> None:
    answer = lab.enter().ask("/run/last")
    assert answer.status == 404 and "no runs in" in answer.text and "dbdyno run lio" in answer.text
    assert lab.ask("/run/last", Accept="application/json").text.startswith('{"error":"no runs in')


@pytest.mark.parametrize(
    ("text", "tls", "reason"),
    [
        ("0.0.0.0:0", None, "others on the network"),
        ("nonsense", None, "no address"),
        ("127.0.0.1:99999", None, "no address"),
        ("192.0.2.1:0", (Path("a"), Path("b")), "assign"),
    ],
)
def test_an_address_that_cannot_be_used_is_an_error(
    text: str, tls: tuple[Path, Path] | None, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        listening(text, insecure=False, tls=tls)


def test_a_port_in_use_is_an_error_and_by_default_another_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match="in use"):
            listening(f"127.0.0.1:{port}", insecure=False, tls=None)
        monkeypatch.setattr("dbdyno.web.address.PORT", port)
        address = listening(None, insecure=False, tls=None)
        assert address.port != port
        address.sockets[0].close()


def test_an_address_for_others_answers_to_addresses_and_the_names_of_this_machine() -> None:
    address = listening("0.0.0.0:0", insecure=True, tls=None)
    address.sockets[0].close()
    assert address.answers_to("192.168.1.9:8431") and address.answers_to(f"{socket.gethostname()}:1")
    assert not address.answers_to("evil.example")
