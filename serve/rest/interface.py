"""The own REST interface among those that share its port."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.responses import Response

from dragoman.serve.edge.problems import service_problem
from dragoman.serve.errors import ServiceError
from dragoman.serve.http.problem import http_problem
from dragoman.serve.observability.request_metrics import Method

TRANSLATE_PATH = "/v1/translate"
STREAM_PATH = "/v1/translate/stream"
SCORE_PATH = "/v1/score"
ATTENTION_PATH = "/v1/attention"
DETECT_PATH = "/v1/detect"
METHODS: dict[str, Method] = {
    TRANSLATE_PATH: "translate",
    STREAM_PATH: "translate_stream",
    SCORE_PATH: "score",
    ATTENTION_PATH: "attention",
}


class RestInterface:
    """The own REST interface, which answers errors with problem documents."""

    reads_keys = False

    def owns(self, path: str) -> bool:  # noqa: ARG002 - it owns what no other interface does
        """Returns true."""
        return True

    def find_method(self, path: str) -> Method | None:
        """Returns the label of a path in the metrics; None: it needs no model."""
        return METHODS.get(path)

    def is_open_to_pages(self, path: str) -> bool:  # noqa: ARG002 - no path is
        """Returns false."""
        return False

    def headers(self, request_id: str) -> Mapping[str, str]:  # noqa: ARG002 - the id is in its own header
        """Returns no headers."""
        return {}

    def write_error(self, error: ServiceError, request_id: str) -> Response:
        """Returns the response to a failed request."""
        return service_problem(error, request_id)

    def write_http_error(self, error: HTTPException, request_id: str) -> Response:
        """Returns the response to an HTTP error."""
        return http_problem(error, request_id)
