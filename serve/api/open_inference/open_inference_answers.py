"""What the REST form of the Open Inference Protocol answers, as records that are written as JSON and documented.

Filled by `serve.api.open_inference.http`.
"""

from pydantic import BaseModel


class Live(BaseModel):
    """Whether the process answers and no model hangs."""

    live: bool


class Ready(BaseModel):
    """Whether every model would translate now."""

    ready: bool


class ModelReady(BaseModel):
    """Whether one model would translate now."""

    name: str
    ready: bool


class Server(BaseModel):
    """The server."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """What a tensor looks like; -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """A model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ConfiguredTensor(BaseModel):
    """A tensor in the words of Triton's configurations."""

    name: str
    data_type: str
    dims: list[int]


class ModelConfig(BaseModel):
    """The part of Triton's model configuration that means something here."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[ConfiguredTensor]
    output: list[ConfiguredTensor]
    model_transaction_policy: dict[str, bool]


class IndexedModel(BaseModel):
    """A model and its state."""

    name: str
    version: str
    state: str
    reason: str


class AnsweredTensor(BaseModel):
    """A tensor; without data, its elements are behind the JSON."""

    name: str
    shape: list[int]
    datatype: str
    data: list[str | int | float] | None = None
    parameters: dict[str, int] | None = None


class InferAnswer(BaseModel):
    """The translations, and where the time went, in seconds."""

    id: str | None = None
    model_name: str
    model_version: str
    parameters: dict[str, float]
    outputs: list[AnsweredTensor]


class GeneratedAnswer(BaseModel):
    """The translation of one text."""

    id: str | None = None
    model_name: str
    model_version: str
    text_output: str
    score: float
    normalised_score: float
    finish_reason: str
    source_tokens: int
    target_tokens: int


class ErrorAnswer(BaseModel):
    """What was wrong, and what was expected."""

    error: str
