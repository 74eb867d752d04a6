"""The end of a sequence: its metrics, its state and its callback."""

from dragoman.serve.errors import CancelledError, DeadlineExceededError, ServiceError
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.sequence import DecodingSequence


def end_sequence(sequence: DecodingSequence, error: ServiceError | None, metrics: Metrics, now_seconds: float) -> None:
    """Ends a sequence, with its translation or an error. Called once for every accepted sequence."""
    if error is not None:
        metrics.observe_failure(error.reason, wasted_tokens=sequence.decoded_tokens)
        if isinstance(error, CancelledError):
            metrics.observe_release(error.reason, now_seconds - sequence.cancelled_seconds)
        if isinstance(error, DeadlineExceededError) and sequence.deadline_seconds is not None:
            metrics.observe_release(error.reason, now_seconds - sequence.deadline_seconds)
    elif sequence.hypotheses:
        metrics.observe_translated(
            sequence.best.finish_reason,
            first_token_seconds=sequence.first_token_seconds - sequence.submitted_seconds,
            further_tokens=len(sequence.best.token_scores) - 1,
            further_seconds=now_seconds - sequence.first_token_seconds,
            encode_seconds=sequence.encoded_seconds - sequence.started_seconds,
            decode_seconds=now_seconds - sequence.encoded_seconds,
        )
    sequence.finish(now_seconds, error)
