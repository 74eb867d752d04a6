"""The second pass: decodes sentences again whose translations lack placeholders or terms.

The new translation starts as the old one does, up to the place where the alignment puts what is lacking, and goes on
with it. One lacking part per sentence and round, the first one of the translation; the forms of a term side by side.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from typing import NamedTuple, TypeVar

from dragoman.serve.errors import InvalidRequestError, QueueFullError
from dragoman.serve.protect.placeholders.check import Repair, RepairWay
from dragoman.serve.protect.terms.sentence_terms import Prefix
from dragoman.serve.scheduler.request_scheduler import RequestScheduler
from dragoman.serve.scheduler.sequence import DecodingSequence
from dragoman.serve.search.hypothesis import Hypothesis
from dragoman.serve.translation.job import Job, Sentence
from dragoman.serve.translation.large_work import spread
from dragoman.serve.translation.renderer import Renderer
from dragoman.serve.translation.segments import TextModel
from dragoman.serve.translation.submission import Submission

MAX_ROUNDS = 6
# Stands for the placeholders of a sentence, beside the indices of its terms.
_PLACEHOLDERS = -1

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Open:
    """A sentence that lacks something.

    Attributes:
        lacking: number of the parts that its best translation lacks.
        failed: parts that decoding again did not bring.
    """

    sentence: Sentence
    lacking: int
    failed: set[int] = field(default_factory=set)


class _Retry(NamedTuple):
    """A sequence to decode.

    Attributes:
        part: index of the term that it brings, or `_PLACEHOLDERS`.
        text: the form or the placeholder that it brings.
    """

    state: _Open
    part: int
    text: str
    sequence: DecodingSequence


class SecondPass:
    """Completes the translations of one model."""

    def __init__(self, model: TextModel, scheduler: RequestScheduler, renderer: Renderer) -> None:
        self._model = model
        self._tokenizer = model.tokenizer
        self._scheduler = scheduler
        self._renderer = renderer

    async def complete(self, job: Job) -> None:
        """Replaces hypotheses by others that lack fewer placeholders and terms.

        Without room in the queue, and of several hypotheses, they stay.
        """
        if job.options.hypotheses > 1:
            return
        counts = await self._spread(job, self.lacks, job.sentences)
        open_sentences = [_Open(*pair) for pair in zip(job.sentences, counts, strict=True) if pair[1]]
        for _ in range(MAX_ROUNDS):
            found = await self._spread(job, partial(self._retries, job), open_sentences)
            if not (retries := list(chain.from_iterable(found))):
                break
            try:
                await self._decode(job, [retry.sequence for retry in retries])
            except QueueFullError:
                break
            groups = [list(group) for _, group in groupby(retries, key=lambda retry: id(retry.state))]
            await self._spread(job, self._take_better, groups)
        await self._translate_bare(job)

    async def _spread(self, job: Job, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Returns what `work` returns for each item, which takes long if many sentences have terms or placeholders."""
        return await spread(partial(map, work), items, job.deadline_seconds, large=job.slow_to_render)

    async def _translate_bare(self, job: Job) -> None:
        """Replaces sentences that still lack placeholders by those without placeholders."""
        found = await self._spread(job, partial(self._bare, job), job.sentences)
        bare = {index: sentence for index, sentence in enumerate(found) if sentence is not None}
        with suppress(QueueFullError):
            await self._decode(job, list(bare.values()))
            lost = await self._spread(job, partial(self._repairs, job), list(bare.values()))
            for (index, sentence), repairs in zip(bare.items(), lost, strict=True):
                if not repairs:
                    job.sentences[index] = sentence

    def _repairs(self, job: Job, sentence: Sentence) -> Sequence[Repair]:
        """Returns the placeholders that are placed by alignment, or that keep a sentence from being translated."""
        if sentence.markup is None:
            return ()
        best = self._renderer.alternative(job, sentence, sentence.hypotheses[0], sentence.decoded)
        return sentence.markup.render(best)[1]

    def _bare(self, job: Job, sentence: Sentence) -> Sentence | None:
        """Returns a sentence without its placeholders, to be decoded; None: it has none, or they are there."""
        markup = sentence.markup
        bare = None if markup is None else markup.without_placeholders
        if markup is None or bare is None or not self._repairs(job, sentence):
            return None
        repairs = tuple(Repair(text, RepairWay.PLACED) for text in markup.sentence.kept_texts)
        text = bare.sentence.text
        other = Sentence(text=text, number=sentence.number, markup=bare, cached=sentence.cached, repairs=repairs)
        self._model.tokenize(job, job.add_terms([other]))
        return other

    async def _decode(self, job: Job, sequences: Sequence[DecodingSequence]) -> None:
        with Submission(
            self._scheduler,
            sequences,
            deadline_seconds=job.deadline_seconds,
            priority=job.priority,
            fairness_key=job.fairness_key or job.shared,
            patient=True,
        ) as submission:
            await submission.change()

    def lacks(self, sentence: Sentence, hypothesis: Hypothesis | None = None) -> int:
        """Returns how many placeholders and terms a translation lacks; None: the best one."""
        count, hypothesis = 0, hypothesis or sentence.hypotheses[0]
        if sentence.markup is not None:
            count += sentence.markup.lacks(self._tokenizer.decode(hypothesis.target_ids))
        if sentence.terms is not None:
            count += len(sentence.terms.lacking(*self._renderer.draft(sentence, hypothesis)))
        return count

    def _retries(self, job: Job, state: _Open) -> list[_Retry]:
        """Returns the sequences that may bring the first lacking part of a sentence."""
        if not state.lacking:
            return []
        while choices := list(self._options(state)):
            part, prefixes = min(choices, key=lambda option: len(option[1][0].text))
            retries = list[_Retry]()
            for prefix in prefixes:
                # A prefix may exceed the longest translation.
                with suppress(InvalidRequestError):
                    # The model may have no tokens for a text.
                    if prefix.end in self._tokenizer.decode(self._tokenizer.encode_target(prefix.end)):
                        prefix_ids = tuple(self._tokenizer.encode_target(prefix.text))
                        options = job.options_for(state.sentence, prefix_ids)._replace(
                            new_word=prefix.complete, candidate_ids=state.sentence.options.candidate_ids
                        )
                        sequence = DecodingSequence(state.sentence.source_ids, options)
                        retries.append(_Retry(state, part, prefix.end, sequence))
            if retries:
                return retries
            state.failed.add(part)
        return []

    def _options(self, state: _Open) -> Iterator[tuple[int, Sequence[Prefix]]]:
        """Yields the first lacking term and the first lost placeholder, unless they failed, with prefixes."""
        sentence = state.sentence
        text, alignment = self._renderer.draft(sentence, sentence.hypotheses[0])
        prefix = None if sentence.markup is None else sentence.markup.prefix(text, alignment)
        if prefix is not None and _PLACEHOLDERS not in state.failed:
            yield _PLACEHOLDERS, [prefix]
        option = None if sentence.terms is None else sentence.terms.prefixes(text, alignment, state.failed)
        if option is not None:
            yield option

    def _take_better(self, tried: Sequence[_Retry]) -> None:
        """Gives a sentence the best hypothesis: that which lacks least, and of these the most probable one."""
        state = tried[0].state
        sentence = state.sentence
        scored = [
            (self.lacks(sentence, retry.sequence.best), -retry.sequence.best.normalized_score, number)
            for number, retry in enumerate(tried)
        ]
        lacking, _, number = min(scored)
        retry = tried[number]
        if lacking >= state.lacking:
            state.failed.add(retry.part)
            return
        state.lacking = lacking
        sentence.hypotheses = retry.sequence.hypotheses
        if retry.part == _PLACEHOLDERS:
            sentence.repairs = (*sentence.repairs, Repair(retry.text, RepairWay.DECODED))
        else:
            sentence.decoded |= {retry.part}
