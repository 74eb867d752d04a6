"""The errors of translators and clients, which have one base class."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dragoman.model.errors import UserError
from dragoman.serve.errors import DeadlineExceededError, DrainingError, ServiceError

# Search options are keyword arguments here, and no record of their own.
_OPTIONS = "options."
CLOSED = "the translator is closed"
_INDEX = re.compile(r"(?<=\[)\d+(?=\])")


class TranslationError(UserError):
    """A text was not translated; the message states the reason.

    Attributes:
        may_be_of_one_text: whether a single one of several texts may be the cause.
    """

    may_be_of_one_text = True


def is_of_one_text(error: Exception) -> bool:
    """Returns whether one of several texts may have caused an error, so that the others are translated without it."""
    return isinstance(error, TranslationError) and error.may_be_of_one_text


class InvalidArgumentError(TranslationError, ValueError):
    """An argument is invalid.

    Attributes:
        field: name of the argument, such as `beam_size`; `text[3]` is the fourth text of the caller.
        problem: the given value, and the expected one.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class ModelError(TranslationError):
    """A model cannot be found, downloaded or loaded."""

    may_be_of_one_text = False


class DeadlineError(TranslationError, TimeoutError):
    """The timeout passed before the translation was complete."""

    may_be_of_one_text = False


class ClosedError(TranslationError):
    """The translator is closed, not open yet, or belongs to another process."""

    may_be_of_one_text = False


@contextmanager
def typed_errors(indices: Sequence[int] = ()) -> Iterator[None]:
    """Converts errors of the dispatcher.

    `indices`: positions of the texts of the request among those of the caller; empty: the same positions.
    """
    try:
        yield
    except DeadlineExceededError as error:
        raise DeadlineError(str(error)) from error
    except DrainingError as error:
        raise ClosedError(CLOSED) from error
    except ServiceError as error:
        if error.field is None:
            raise TranslationError(str(error)) from error
        problem = str(error).removeprefix(f"{error.field}: ")
        field = _INDEX.sub(lambda found: str(indices[int(found[0])] if indices else found[0]), error.field, count=1)
        raise InvalidArgumentError(field.removeprefix(_OPTIONS), problem) from error
