"""Call backs go to listed hosts and ports only, whatever form a URL has."""

import pytest

from dragoman.serve.callbacks.hosts import MAX_URL_CHARACTERS, CallbackHosts
from dragoman.serve.errors import ForbiddenError, InvalidRequestError
from dragoman.serve.host.files import FileError
from tests.support.cases import cases

CASES = cases(__file__)
LONGEST = "https://api.example.org:443/".ljust(MAX_URL_CHARACTERS, "x")
URL = LONGEST.replace(":443", "")


@pytest.mark.parametrize(("entry", "url", "expected"), CASES["an allowed URL"])
def test_an_allowed_url_has_its_scheme_host_port_and_target(entry: str, url: str, expected: str) -> None:
    hosts = CallbackHosts(["other.test", entry])
    assert str(hosts.check(url)) == str(hosts.check(expected)) == expected
    assert str(CallbackHosts(["api.example.org"]).check(URL)) == LONGEST


@pytest.mark.parametrize(("entry", "url"), [*CASES["a refused URL"], ("api.example.org", f"{URL}x")])
def test_a_refused_url_is_an_error_of_the_field(entry: str, url: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"^callback: .*, expected .*(https://HOST:PORT/|--callback-hosts)"):
        CallbackHosts([entry]).check(url)


@pytest.mark.parametrize("entry", CASES["a wrong entry of the list"])
def test_a_wrong_entry_of_the_list_is_an_error_of_the_setting(entry: str) -> None:
    with pytest.raises(FileError, match=r"^--callback-hosts: '.*', expected HOST, HOST:PORT"):
        CallbackHosts([entry])


def test_without_a_list_all_call_backs_are_refused() -> None:
    with pytest.raises(ForbiddenError, match="expected a server with --callback-hosts"):
        CallbackHosts([]).check(URL)
