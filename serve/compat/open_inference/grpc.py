"""The Open Inference Protocol over gRPC.

Unary methods are recorded and shed like those of the translation service. The stream is served here, because its
requests fail independently.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import grpc.aio
from google.protobuf.json_format import ParseDict

from dragoman.protos import inference_pb2 as messages
from dragoman.serve.compat.open_inference import protocol
from dragoman.serve.errors import CancelledError, InvalidRequestError, ServiceError
from dragoman.serve.grpc.call import Context, DeadlineScope, answering, call_headers, recorded, send
from dragoman.serve.grpc.messages import RequestParser
from dragoman.serve.grpc.service import MakeHandler
from dragoman.serve.grpc.waits import LimitedWait, idle_streams
from dragoman.serve.observability.logs import RequestRecord, choose_request_id
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.observability.request_metrics import Method

SERVICE = messages.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
METHODS: dict[str, Method] = {f"/{SERVICE}/ModelInfer": "infer", f"/{SERVICE}/ModelStreamInfer": "infer_stream"}
# Methods that need no key.
PROBES = frozenset(f"/{SERVICE}/{name}" for name in ("ServerLive", "ServerReady", "ModelReady"))
# Triton's clients read this parameter to detect the last response.
FINAL = "triton_final_response"
# Maximum number of requests of one stream in flight; reading pauses at the limit.
STREAM_REQUESTS = 64

# Ignored: every last response already has the flag.
_EMPTY_FINAL = "triton_enable_empty_final_response"

Parsed = messages.ModelInferRequest | InvalidRequestError


class OpenInferenceGrpc:
    """Methods of the service."""

    name = SERVICE
    methods = METHODS
    probes = PROBES

    def __init__(self, open_inference: protocol.OpenInference, metrics: ServiceMetrics, max_values: int) -> None:
        """Requests have at most `max_values` values."""
        self._open_inference = open_inference
        self._metrics = metrics
        self._idle_streams = idle_streams()
        self._max_values = max_values

    def handlers(self, make: MakeHandler) -> dict[str, Any]:
        """Returns the handler of each method."""
        return {
            "ServerLive": make("other", messages.ServerLiveRequest, self._live),
            "ServerReady": make("other", messages.ServerReadyRequest, self._ready),
            "ModelReady": make("other", messages.ModelReadyRequest, self._model_ready),
            "ServerMetadata": make("other", messages.ServerMetadataRequest, self._metadata),
            "ModelMetadata": make("other", messages.ModelMetadataRequest, self._model_metadata),
            "ModelConfig": make("other", messages.ModelConfigRequest, self._model_config),
            "RepositoryIndex": make("other", messages.RepositoryIndexRequest, self._index),
            "ModelInfer": make("infer", messages.ModelInferRequest, self._infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(
                self._stream_infer,
                request_deserializer=RequestParser(messages.ModelInferRequest, self._max_values).parse,
                response_serializer=messages.ModelStreamInferResponse.SerializeToString,
            ),
        }

    async def _live(self, *_: object) -> messages.ServerLiveResponse:
        return messages.ServerLiveResponse(live=self._open_inference.live)

    async def _ready(self, *_: object) -> messages.ServerReadyResponse:
        return messages.ServerReadyResponse(ready=self._open_inference.ready)

    async def _model_ready(self, request: messages.ModelReadyRequest, *_: object) -> messages.ModelReadyResponse:
        return messages.ModelReadyResponse(ready=self._open_inference.status(request.name, request.version).ready)

    async def _metadata(self, *_: object) -> messages.ServerMetadataResponse:
        return ParseDict(self._open_inference.server, messages.ServerMetadataResponse())

    async def _model_metadata(
        self, request: messages.ModelMetadataRequest, *_: object
    ) -> messages.ModelMetadataResponse:
        metadata = self._open_inference.metadata(request.name, request.version)
        return ParseDict(metadata, messages.ModelMetadataResponse())

    async def _model_config(self, request: messages.ModelConfigRequest, *_: object) -> messages.ModelConfigResponse:
        config = self._open_inference.config(request.name, request.version)
        return ParseDict({"config": config}, messages.ModelConfigResponse())

    async def _index(self, request: messages.RepositoryIndexRequest, *_: object) -> messages.RepositoryIndexResponse:
        models = self._open_inference.index(ready=request.ready)
        return ParseDict({"models": models}, messages.RepositoryIndexResponse())

    async def _infer(
        self, request: messages.ModelInferRequest, deadline_seconds: float | None, record: RequestRecord
    ) -> messages.ModelInferResponse:
        inferred = await self._open_inference.infer(_inference(request, deadline_seconds, self._max_values), record)
        return _response(inferred, raw=bool(request.raw_input_contents))

    async def _stream_infer(self, _: object, context: Context) -> None:
        """Serves the requests of a stream concurrently; raises ServiceError for idle or unread streams."""
        headers = call_headers(context)
        free_requests = asyncio.Semaphore(STREAM_REQUESTS)
        writing = asyncio.Lock()

        async def write(response: messages.ModelStreamInferResponse) -> None:
            async with writing:
                await send(context, response)

        async def answer(request: Parsed) -> None:
            try:
                await self._answer_one(request, context, headers, write)
            finally:
                free_requests.release()

        ended: ServiceError | None = None
        async with answering() as tasks:
            await free_requests.acquire()
            try:
                async for request in self._requests(context):
                    tasks.create_task(answer(request))
                    await free_requests.acquire()
            except ServiceError as error:
                ended = error
        if ended is not None:
            raise ended

    async def _requests(self, context: Context) -> AsyncIterator[Parsed]:
        while True:
            with LimitedWait(self._idle_streams):
                request = await context.read()
            if request is grpc.aio.EOF:
                return
            yield request

    async def _answer_one(
        self,
        request: Parsed,
        context: Context,
        headers: Mapping[str, str],
        write: Callable[[messages.ModelStreamInferResponse], Awaitable[None]],
    ) -> None:
        response = messages.ModelInferResponse()
        if isinstance(request, messages.ModelInferRequest):
            response = messages.ModelInferResponse(model_name=request.model_name, id=request.id)
        try:
            request_id = choose_request_id(response.id)
            with (
                recorded(self._metrics, "infer_stream", request_id, headers) as record,
                DeadlineScope(context, record) as deadline_seconds,
            ):
                if isinstance(request, InvalidRequestError):
                    raise request
                async with aclosing(self._inferred(request, deadline_seconds, record)) as answers:
                    async for inferred in answers:
                        message = _response(inferred, raw=bool(request.raw_input_contents))
                        message.parameters[FINAL].bool_param = inferred.timings is not None
                        await write(messages.ModelStreamInferResponse(infer_response=message))
        except CancelledError:
            raise
        except ServiceError as error:
            await write(messages.ModelStreamInferResponse(error_message=str(error), infer_response=response))

    async def _inferred(
        self, request: messages.ModelInferRequest, deadline_seconds: float | None, record: RequestRecord
    ) -> AsyncGenerator[protocol.Inferred]:
        inference = _inference(request, deadline_seconds, self._max_values)
        if not inference.parameters.stream:
            yield await self._open_inference.infer(inference, record)
            return
        async with aclosing(self._open_inference.stream(inference, record)) as growth:
            async for inferred in growth:
                yield inferred


def _inference(
    request: messages.ModelInferRequest, deadline_seconds: float | None, max_texts: int
) -> protocol.Inference:
    """Converts a message to a request; raises InvalidRequestError with the first invalid field."""
    tensors = protocol.read_tensors(request.inputs, request.outputs, lambda _: _texts(request, max_texts))
    values = {name: _value(parameter) for name, parameter in request.parameters.items() if name != _EMPTY_FINAL}
    return protocol.Inference(
        model=request.model_name,
        version=request.model_version,
        request_id=request.id,
        tensors=tensors,
        parameters=protocol.Parameters.parse(values),
        deadline_seconds=deadline_seconds,
    )


def _texts(request: messages.ModelInferRequest, max_texts: int) -> list[str]:
    contents = request.inputs[0].contents
    if not request.raw_input_contents:
        return [protocol.decode_text(text, index) for index, text in enumerate(contents.bytes_contents)]
    if len(request.raw_input_contents) != 1:
        raise InvalidRequestError("raw_input_contents", f"{len(request.raw_input_contents)}, expected one per input")
    if contents.ListFields():
        raise InvalidRequestError(
            f"{protocol.INPUT_FIELD}.contents", "given, expected none together with raw_input_contents"
        )
    return protocol.unpack_texts(request.raw_input_contents[0], "raw_input_contents[0]", max_texts)


def _value(parameter: messages.InferParameter) -> object:
    chosen = parameter.WhichOneof("parameter_choice")
    return None if chosen is None else getattr(parameter, chosen)


def _response(inferred: protocol.Inferred, *, raw: bool) -> messages.ModelInferResponse:
    response = messages.ModelInferResponse(
        model_name=inferred.model, model_version=inferred.version, id=inferred.request_id
    )
    for name, value in inferred.seconds.items():
        response.parameters[name].double_param = value
    for tensor in inferred.tensors:
        output = response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if raw:
            response.raw_output_contents.append(tensor.pack())
        else:
            output.contents.CopyFrom(_contents(tensor))
    return response


def _contents(tensor: protocol.Tensor) -> messages.InferTensorContents:
    elements: Any = tensor.elements
    if tensor.datatype == "BYTES":
        return messages.InferTensorContents(bytes_contents=[text.encode() for text in elements])
    return messages.InferTensorContents(**{f"{tensor.datatype.lower()}_contents": elements})
