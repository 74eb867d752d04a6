"""The end of a sequence: its metrics, its state and its callback."""

from serve.errors import CancelledError, DeadlineExceededError, ServiceError
from serve.observability.metrics import Metrics
from serve.scheduler.sequence import DecodingSequence


def end_sequence(sequence: DecodingSequence, error: ServiceError | None, metrics: Metrics, now_seconds: float) -> None:
    """Ends a sequence, with its translation or an error. Called once for every accepted sequence."""
    if error is not None:
        metrics.observe_finish(error.reason, wasted_tokens=sequence.decoded_tokens)
        if isinstance(error, CancelledError):
            metrics.observe_release(error.reason, now_seconds - sequence.cancelled_seconds)
        if isinstance(error, DeadlineExceededError) and sequence.deadline_seconds is not None:
            metrics.observe_release(error.reason, now_seconds - sequence.deadline_seconds)
    elif sequence.hypotheses:
        metrics.observe_finish(sequence.best.finish_reason, wasted_tokens=0)
        metrics.observe_phases(
            encode_seconds=sequence.encoded_seconds - sequence.started_seconds,
            decode_seconds=now_seconds - sequence.encoded_seconds,
        )
    sequence.finish(now_seconds, error)
