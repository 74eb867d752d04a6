"""Segmented requests: texts become sentences, and responses are joined."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.bundle.manifest import BundleDirection
from serve.errors import InvalidRequestError
from serve.observability.usage import Timings
from serve.search.hypothesis import FinishReason
from serve.search.options import SearchOptions
from serve.translation.request import ModelRequest, SearchPlan, TextRequest
from serve.translation.response import TokenScore, Translation, TranslationDelta, TranslationResponse
from serve.translation.segments import SegmentedRequest, SegmentedText, split_text

EN_DE = BundleDirection(source="en", target="de")
GREEDY = SearchPlan(SearchOptions(max_target_tokens=9))
TEXT = "  A man runs. A dog, too!\n\nThe end.\n"


def fits(sentence: str) -> bool:
    return len(sentence) <= 40


def text_request(text: str, prefix: str = "") -> TextRequest:
    return TextRequest(text, prefix, "text[0]", "target_prefix[0]")


def request(*texts: TextRequest, split_sentences: bool = True, plan: SearchPlan = GREEDY) -> ModelRequest:
    return ModelRequest(texts, EN_DE, plan, 7.0, split_sentences=split_sentences)


def passages_of(asked: ModelRequest) -> SegmentedRequest:
    return SegmentedRequest.of(asked, [split_text(asked, text, fits) for text in asked.texts])


def translation(text: str, **different: object) -> Translation:
    tokens = len(text)
    plain = Translation(
        text=text,
        score=-float(tokens),
        normalized_score=-1.0,
        finish_reason=FinishReason.EOS,
        target_tokens=tokens,
        source_tokens=tokens + 1,
    )
    return replace(plain, **different)  # type: ignore[arg-type]


def response(*translations: Translation) -> TranslationResponse:
    return TranslationResponse(translations, Timings(0.0, 0.0, 0.0, 0.0))


def test_sentences_are_texts_of_their_own() -> None:
    passages = passages_of(request(text_request(TEXT), text_request("One.")))
    assert [each.text for each in passages.request.texts] == ["A man runs.", "A dog, too!", "The end.", "One."]


def test_a_text_that_is_not_to_be_split_is_taken_as_it_is() -> None:
    passages = passages_of(request(text_request(TEXT), split_sentences=False))
    assert [each.text for each in passages.request.texts] == [TEXT]
    assert passages.join(response(translation("x"))) == response(translation("x"))


def test_several_sentences_make_one_translation() -> None:
    passages = passages_of(request(text_request(TEXT), text_request("One.")))
    joined = passages.join(response(*map(translation, ["Ab.", "C!", "Def.", "Eins."])))
    text, one = joined.translations
    assert text.text == "  Ab. C!\n\nDef.\n"
    assert (text.score, text.normalized_score) == (-9.0, -1.0)
    assert (text.target_tokens, text.source_tokens, text.sentences) == (9, 12, 3)
    assert one == translation("Eins.")


def test_a_translation_is_cut_off_if_one_of_its_sentences_is() -> None:
    passages = passages_of(request(text_request("One. Two.")))
    cut_off = translation("b", finish_reason=FinishReason.LENGTH)
    for parts in ([cut_off, translation("a")], [translation("a"), cut_off]):
        assert passages.join(response(*parts)).translations[0].finish_reason is FinishReason.LENGTH


def test_a_text_was_answered_before_only_if_all_its_sentences_were() -> None:
    passages = passages_of(request(text_request("One. Two.")))
    for cached, expected in (((None, None), None), ((True, False), False), ((True, True), True)):
        parts = [translation("a", cached=each) for each in cached]
        assert passages.join(response(*parts)).translations[0].cached is expected


def test_the_tokens_of_the_sentences_follow_each_other() -> None:
    passages = passages_of(request(text_request("One. Two.")))
    tokens = [(TokenScore("a", -1.0), TokenScore("b", -2.0)), (TokenScore("c", -3.0),)]
    parts = [translation("x", tokens=each) for each in tokens]
    assert passages.join(response(*parts)).translations[0].tokens == (*tokens[0], *tokens[1])


def test_sentences_that_had_to_be_cut_are_reported() -> None:
    passages = passages_of(request(text_request("word " * 12 + "end. Short.")))
    count = len(passages.request.texts)
    joined = passages.join(response(*[translation("x")] * count))
    assert count > 2
    assert joined.translations[0].cut_sentences == 1
    assert joined.translations[0].sentences == count


@pytest.mark.parametrize(
    ("options", "prefix", "field"),
    [
        (SearchOptions(max_target_tokens=9, beam_size=2, hypotheses=2), "", "options.hypotheses"),
        (SearchOptions(max_target_tokens=9, alignments=True), "", "options.alignments"),
        (SearchOptions(max_target_tokens=9), "Ein", "target_prefix[0]"),
    ],
)
def test_what_only_one_sentence_can_have_is_refused_for_several(
    options: SearchOptions, prefix: str, field: str
) -> None:
    plan = SearchPlan(options)
    with pytest.raises(InvalidRequestError, match=r"text\[0\] has 2 sentences") as raised:
        passages_of(request(text_request("One. Two.", prefix), plan=plan))
    assert raised.value.field == field
    passages_of(request(text_request("One.", prefix), plan=plan))
    passages_of(request(text_request("One. Two.", prefix), plan=plan, split_sentences=False))


Listener = Callable[[TranslationDelta], list[TranslationDelta]]


@given(
    st.lists(st.lists(st.text("ab ", max_size=3), max_size=3), min_size=1, max_size=4).flatmap(
        lambda pieces: st.tuples(
            st.just(pieces), st.permutations([place for place, each in enumerate(pieces) for _ in (*each, "end")])
        )
    ),
    st.integers(0, 3),
)
def test_the_deltas_of_a_text_make_up_its_text_in_whatever_order_sentences_grow(
    drawn: tuple[list[list[str]], list[int]], cut_off: int
) -> None:
    """Token counts never decrease; only the last delta has a finish reason, and only it may be empty."""
    pieces, order = drawn
    passage = SegmentedText(tuple("x" * len(pieces)), tuple(f"{place}\n" for place in range(len(pieces) + 1)), 0)
    asked = request(text_request("x"))
    (listeners,) = [SegmentedRequest((passage,), asked).streams()]
    deltas: list[TranslationDelta] = []
    sent = [0] * len(pieces)
    for place in order:
        number = sent[place]
        sent[place] += 1
        over = number == len(pieces[place])
        reason = (FinishReason.LENGTH if place == cut_off else FinishReason.EOS) if over else None
        text = "" if over else pieces[place][number]
        deltas += listeners[place](
            TranslationDelta(text_index=place, text=text, target_tokens=number, finish_reason=reason)
        )
    assert "".join(delta.text for delta in deltas) == passage.join(["".join(each) for each in pieces])
    assert [delta.target_tokens for delta in deltas] == sorted(delta.target_tokens for delta in deltas)
    assert deltas[-1].target_tokens == sum(map(len, pieces))
    *before, last = deltas
    assert all(delta.finish_reason is None and delta.text for delta in before)
    assert last.finish_reason is (FinishReason.LENGTH if cut_off < len(pieces) else FinishReason.EOS)
