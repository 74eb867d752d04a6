"""The own REST interface among those that share its port."""

from starlette.exceptions import HTTPException
from starlette.responses import Response

from dragoman.serve.edge.interface import Interface
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


class RestInterface(Interface):
    """The own REST interface, which answers errors with problem documents."""

    methods = METHODS

    def owns(self, path: str) -> bool:  # noqa: ARG002 - it owns what no other interface does
        """Returns true."""
        return True

    def write_error(self, error: ServiceError, request_id: str) -> Response:
        """Returns the response to a failed request."""
        return service_problem(error, request_id)

    def write_http_error(self, error: HTTPException, request_id: str) -> Response:
        """Returns the response to an HTTP error."""
        return http_problem(error, request_id)
