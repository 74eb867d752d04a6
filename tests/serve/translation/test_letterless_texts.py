"""A text without a letter stays as it is over every interface, and no model reads it."""

from collections.abc import Callable

import httpx
import pytest

from tests.support.live import LiveService
from tests.support.wire import translate_over_both

TEXTS = ["12:30", "\u20ac 12.50", "\U0001f600", "1", "\u2014 2024 \u2014", " 7\n\n8 % ", "\u00bd", "(1) ..."]
MARKUP = ["<p>\U0001f600 <b>\U0001f389</b></p>", "&lt;&amp;&gt;", "<td>12.50</td><td>\u20ac</td>"]


def over_rest(client: httpx.Client, text: str, markup_format: str) -> str:
    (translation,) = client.post("/v1/translate", json={"text": text, "format": markup_format}).json()["translations"]
    assert translation["sentences"] == 0
    return str(translation["text"])


def over_libretranslate(client: httpx.Client, text: str, markup_format: str) -> str:
    fields = {"q": text, "source": "en", "target": "de", "format": markup_format}
    return str(client.post("/translate", json=fields).json()["translatedText"])


def over_deepl(client: httpx.Client, text: str, markup_format: str) -> str:
    tags = {"tag_handling": "html"} if markup_format == "html" else {}
    fields = {"text": [text], "source_lang": "EN", "target_lang": "DE", **tags}
    return str(client.post("/v2/translate", json=fields).json()["translations"][0]["text"])


@pytest.mark.parametrize("send", [over_rest, over_libretranslate, over_deepl])
@pytest.mark.parametrize(("markup_format", "texts"), [("text", TEXTS), ("html", [*TEXTS[:5], *MARKUP])])
def test_it_stays_over_each_interface(
    letters_live: LiveService, send: Callable[[httpx.Client, str, str], str], markup_format: str, texts: list[str]
) -> None:
    with letters_live.http() as client:
        assert [send(client, text, markup_format) for text in texts] == texts


def test_it_stays_in_a_tensor(letters_live: LiveService) -> None:
    tensor = {"name": "text_input", "shape": [len(TEXTS)], "datatype": "BYTES", "data": TEXTS}
    answer = letters_live.post({"inputs": [tensor]}, path="/v2/models/fake/infer").json()
    assert next(output["data"] for output in answer["outputs"] if output["name"] == "text_output") == TEXTS


@pytest.mark.parametrize("split_sentences", [True, False])
@pytest.mark.parametrize("options", [{}, {"beam_size": 2, "hypotheses": 2}])
def test_it_stays_next_to_texts_with_letters(
    letters_live: LiveService, options: dict[str, int], *, split_sentences: bool
) -> None:
    request = {"split_sentences": split_sentences, "options": {"max_target_tokens": 6, **options}}
    (alone,) = translate_over_both(letters_live, {"text": ["ab"], **request})
    first, second, third = translate_over_both(letters_live, {"text": ["12:30", "ab", "1"], **request})
    assert (first["text"], second["text"], third["text"]) == ("12:30", alone["text"], "1")
    assert second["score"] == alone["score"]


def test_it_is_one_delta_of_a_stream(letters_live: LiveService) -> None:
    content = letters_live.post({"text": ["12:30"]}, path="/v1/translate/stream").text
    assert content.count("event: delta") == 1
    assert '"text":"12:30"' in content
