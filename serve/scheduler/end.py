"""The end of sequences: their metrics, their state and the callbacks of their groups."""

from collections.abc import Iterable

import structlog

from dragoman.serve.errors import CancelledError, DeadlineExceededError, ServiceError
from dragoman.serve.observability.metrics import Metrics, SequenceTimes
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup, SequenceState

log = structlog.get_logger(__name__)


def end_sequences(sequences: Iterable[DecodingSequence], metrics: Metrics) -> None:
    """Ends sequences that have their error or translations, and the time of the end. Each accepted one ends once."""
    groups: dict[SequenceGroup, list[DecodingSequence]] = {}
    translated: list[SequenceTimes] = []
    for sequence in sequences:
        if sequence.error is not None:
            sequence.hypotheses = ()
            _count_failure(sequence, sequence.error, metrics)
        elif sequence.hypotheses:
            translated.append(_times(sequence))
        sequence.state = SequenceState.FINISHED
        groups.setdefault(sequence.group, []).append(sequence)
    metrics.translated.add(*translated)
    for group, ended in groups.items():
        try:
            group.on_finish(ended)
        except Exception:  # a failure must not hold back other results
            log.exception("delivery_failed")


def _count_failure(sequence: DecodingSequence, error: ServiceError, metrics: Metrics) -> None:
    metrics.observe_failure(error.reason, wasted_tokens=sequence.decoded_tokens)
    if sequence.state is SequenceState.RUNNING:
        metrics.queue.observe(sequence.started_seconds - sequence.submitted_seconds)
    deadline_seconds = sequence.group.deadline_seconds
    if isinstance(error, CancelledError):
        metrics.observe_release(error.reason, sequence.finished_seconds - sequence.cancelled_seconds)
    if isinstance(error, DeadlineExceededError) and deadline_seconds is not None:
        metrics.observe_release(error.reason, sequence.finished_seconds - deadline_seconds)


def _times(sequence: DecodingSequence) -> SequenceTimes:
    best, first_seconds, end_seconds = sequence.hypotheses[0], sequence.first_token_seconds, sequence.finished_seconds
    submitted_seconds, further_tokens = sequence.group.submitted_seconds, len(best.token_scores) - 1
    return (
        best.finish_reason,
        sequence.started_seconds - submitted_seconds,
        first_seconds - submitted_seconds,
        (end_seconds - first_seconds) / further_tokens if further_tokens else None,
        sequence.encoded_seconds - sequence.started_seconds,
        end_seconds - sequence.encoded_seconds,
    )
