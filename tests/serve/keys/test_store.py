"""Stored keys: created once, shown never, changed and revoked; on both databases."""

import pytest

from dragoman.serve.host.state import State
from dragoman.serve.keys.key import KeyLimits, digest_of, id_of
from dragoman.serve.keys.store import KeyExistsError, KeyStore, NoSuchKeyError


def test_a_key_is_stored_as_its_digest(state: State) -> None:
    store = KeyStore(state)
    key, text = store.create("web", KeyLimits(characters=7, models=("a", "b")))
    assert store.list() == [key]
    assert key.matches(digest_of(text.encode()))
    assert not key.matches(digest_of(b"another"))
    assert id_of(text) == key.id
    assert text not in repr(store.list())
    assert len({store.create(f"other-{number}", KeyLimits())[1] for number in range(20)} | {text}) == 21


def test_changes_are_seen_by_others_and_counted(state: State) -> None:
    store, other = KeyStore(state), KeyStore(state)
    assert store.revision() == 0
    key, _ = store.create("web", KeyLimits(characters=7, priority=1))
    assert store.change("web", {"priority": 3}).limits == KeyLimits(characters=7, priority=3)
    assert other.get("web").limits == KeyLimits(characters=7, priority=3)
    revoked = other.revoke("web")
    assert revoked.revoked_seconds is not None
    assert store.get("web") == revoked == store.revoke("web")
    assert key.revoked_seconds is None
    assert store.revision() == 3


def test_names_are_unique_and_known(state: State) -> None:
    store = KeyStore(state)
    store.create("web", KeyLimits())
    with pytest.raises(KeyExistsError, match="'web'"):
        store.create("web", KeyLimits())
    for call in (store.get, store.revoke, lambda name: store.change(name, {})):
        with pytest.raises(NoSuchKeyError, match="'other'"):
            call("other")
    for name in ("", "two words", "-", "x" * 65):
        with pytest.raises(ValueError, match="name: "):
            store.create(name, KeyLimits())
