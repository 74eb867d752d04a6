"""The second pass: decodes sentences again whose translations lack placeholders or terms.

The new translation starts as the old one does, up to the place where the alignment puts what is lacking, and goes on
with it. One lacking part per sentence and round, the first one of the translation; the forms of a term side by side.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from dragoman.model.tokenizer.tokenizer import TextTokenizer
from dragoman.serve.errors import InvalidRequestError, QueueFullError
from dragoman.serve.protect.placeholders.check import Repair, RepairWay
from dragoman.serve.protect.terms.sentence_terms import Prefix
from dragoman.serve.scheduler.request_scheduler import RequestScheduler
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceSpec
from dragoman.serve.search.hypothesis import Hypothesis
from dragoman.serve.translation.large_work import Steps
from dragoman.serve.translation.request import ModelRequest, TextRequest
from dragoman.serve.translation.response import ResponseBuilder, SentenceResult
from dragoman.serve.translation.submission import Submission

MAX_ROUNDS = 6
# Stands for the placeholders of a sentence, beside the indices of its terms.
_PLACEHOLDERS = -1


class _Retry(NamedTuple):
    """A sequence to decode.

    Attributes:
        sentence: its index.
        part: index of the term that it brings, or `_PLACEHOLDERS`.
        text: the form or the placeholder that it brings.
    """

    sentence: int
    part: int
    text: str
    spec: SequenceSpec


@dataclass(slots=True)
class _Open:
    """A sentence that lacks something.

    Attributes:
        lacking: number of the parts that its best translation lacks.
        failed: parts that decoding again did not bring.
    """

    lacking: int
    failed: set[int] = field(default_factory=set)


class SecondPass:
    """Completes the translations of one model."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        scheduler: RequestScheduler,
        responses: ResponseBuilder,
        spec: Callable[[ModelRequest, TextRequest], SequenceSpec],
    ) -> None:
        """Connects the parts of a model; `spec` returns the sequence of a sentence."""
        self._tokenizer = tokenizer
        self._scheduler = scheduler
        self._responses = responses
        self._spec = spec

    async def complete(self, request: ModelRequest, results: Sequence[SentenceResult]) -> list[SentenceResult]:
        """Returns the results with translations that lack fewer placeholders and terms.

        Without room in the queue, and of several hypotheses, the results stay.
        """
        completed = list(results)
        if request.plan.options.hypotheses > 1:
            return completed
        steps = Steps(request)
        lacking = [
            (index, await steps.run(self._lacks, item.sentence, item.hypotheses[0]))
            for index, item in enumerate(completed)
        ]
        open_sentences = {index: _Open(count) for index, count in lacking if count}
        for _ in range(MAX_ROUNDS):
            retries = list[_Retry]()
            for index, state in open_sentences.items():
                retries += await steps.run(self._retries, request, completed[index], index, state)
            if not retries:
                break
            try:
                sequences = await self._decode(request, [retry.spec for retry in retries])
            except QueueFullError:
                break
            tried = sorted(zip(retries, sequences, strict=True), key=lambda pair: pair[0].sentence)
            for index, group in groupby(tried, key=lambda repetition: repetition[0].sentence):
                state = open_sentences[index]
                completed[index] = await steps.run(self._better, completed[index], list(group), state)
        await self._translate_bare(request, completed, steps)
        return completed

    async def _translate_bare(self, request: ModelRequest, results: list[SentenceResult], steps: Steps) -> None:
        """Replaces results that still lack placeholders by those of the sentences without placeholders."""
        bare = dict[int, SentenceResult]()
        for index, result in enumerate(results):
            if (other := await steps.run(self._bare, request, result)) is not None:
                bare[index] = other
        with suppress(QueueFullError):
            sequences = await self._decode(request, [other.spec for other in bare.values()])
            for (index, unsearched), sequence in zip(bare.items(), sequences, strict=True):
                other = unsearched._replace(hypotheses=tuple(sequence.hypotheses))
                if not await steps.run(self._repairs, request, other):
                    results[index] = other

    def _repairs(self, request: ModelRequest, result: SentenceResult) -> Sequence[Repair]:
        """Returns the placeholders that are placed by alignment, or that keep a sentence from being translated."""
        markup = result.sentence.markup
        return () if markup is None else markup.render(self._responses.translation(result, request.plan))[1]

    def _bare(self, request: ModelRequest, result: SentenceResult) -> SentenceResult | None:
        """Returns the search for a sentence without its placeholders; None: it has none, or they are there."""
        markup = result.sentence.markup
        bare = None if markup is None else markup.without_placeholders
        if markup is None or bare is None or not self._repairs(request, result):
            return None
        sentence = result.sentence._replace(text=bare.sentence.text, markup=bare).with_terms()
        kept = (markup.sentence.text[start:end] for start, end in markup.sentence.kept)
        repairs = tuple(Repair(text, RepairWay.PLACED) for text in kept)
        return SentenceResult(sentence, self._spec(request, sentence), (), result.cached, repairs)

    async def _decode(self, request: ModelRequest, specs: Sequence[SequenceSpec]) -> Sequence[DecodingSequence]:
        with Submission(
            self._scheduler,
            specs,
            deadline_seconds=request.deadline_seconds,
            priority=request.priority,
            fairness_key=request.fairness_key,
            patient=True,
        ) as submission:
            await submission.finish()
        return submission.sequences

    def _lacks(self, sentence: TextRequest, hypothesis: Hypothesis) -> int:
        """Returns how many placeholders and terms a translation lacks."""
        count = 0
        if sentence.markup is not None:
            count += sentence.markup.lacks(self._tokenizer.decode(hypothesis.target_ids))
        if sentence.terms is not None:
            count += len(sentence.terms.lacking(*self._responses.draft(sentence.text, hypothesis)))
        return count

    def _retries(self, request: ModelRequest, result: SentenceResult, index: int, state: _Open) -> list[_Retry]:
        """Returns the sequences that may bring the first lacking part of a sentence."""
        if not state.lacking:
            return []
        while options := list(self._options(result, state)):
            part, prefixes = min(options, key=lambda option: len(option[1][0].text))
            retries = list[_Retry]()
            for prefix in prefixes:
                # A prefix may exceed the longest translation.
                with suppress(InvalidRequestError):
                    if self._can_write(prefix.end):
                        spec = self._spec(request, result.sentence._replace(target_prefix=prefix.text))
                        search = spec.options._replace(new_word=prefix.complete)
                        retries.append(_Retry(index, part, prefix.end, spec._replace(options=search)))
            if retries:
                return retries
            state.failed.add(part)
        return []

    def _options(self, result: SentenceResult, state: _Open) -> Iterator[tuple[int, Sequence[Prefix]]]:
        """Yields the first lacking term and the first lost placeholder, unless they failed, with prefixes."""
        sentence = result.sentence
        text, alignment = self._responses.draft(sentence.text, result.hypotheses[0])
        prefix = None if sentence.markup is None else sentence.markup.prefix(text, alignment)
        if prefix is not None and _PLACEHOLDERS not in state.failed:
            yield _PLACEHOLDERS, [prefix]
        option = None if sentence.terms is None else sentence.terms.prefixes(text, alignment, state.failed)
        if option is not None:
            yield option

    def _can_write(self, text: str) -> bool:
        """Returns whether the model has tokens for a text."""
        return text in self._tokenizer.decode(self._tokenizer.encode_target(text))

    def _better(
        self, result: SentenceResult, tried: Sequence[tuple[_Retry, DecodingSequence]], state: _Open
    ) -> SentenceResult:
        """Returns the best result of a sentence: that which lacks least, and of these the most probable one."""
        scored = [
            (self._lacks(result.sentence, sequence.best), -sequence.best.normalized_score, number)
            for number, (_, sequence) in enumerate(tried)
        ]
        lacking, _, number = min(scored)
        retry, sequence = tried[number]
        if lacking >= state.lacking:
            state.failed.add(retry.part)
            return result
        state.lacking = lacking
        hypotheses = tuple(sequence.hypotheses)
        if retry.part == _PLACEHOLDERS:
            repairs = (*result.repairs, Repair(retry.text, RepairWay.DECODED))
            return result._replace(hypotheses=hypotheses, repairs=repairs)
        return result._replace(hypotheses=hypotheses, decoded=result.decoded | {retry.part})
