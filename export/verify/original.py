"""Compares an imported bundle with the library that its checkpoint is for: `transformers` or CTranslate2."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from dragoman.export.answer import Outcome, verdict_of
from dragoman.export.verify.sync_engine import SyncEngine
from dragoman.model.errors import RunError
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.directions import directions_of
from dragoman.serve.bundle.tokenizer import load_tokenizer
from dragoman.serve.runtime.sessions import load_sessions
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.options import SearchOptions

ROWS = 64
Targets = list[tuple[int, ...]]


class SourceSentence(NamedTuple):
    """The token ids of a golden sentence, and the start of its translation."""

    text: str
    source_ids: tuple[int, ...]
    start: tuple[int, ...]


def compare_with_original(
    bundle: Bundle, checkpoint: Path, beam_size: int, minimum_identical: float
) -> Iterator[Outcome]:
    """Yields an outcome for greedy and for beam search; raises RunError if the library of the checkpoint is missing."""
    directions, manifest = directions_of(bundle.manifest), bundle.manifest
    found = [directions.find(*sentence.languages) for sentence in bundle.golden]
    sources = [
        SourceSentence(sentence.source, sentence.source_ids, () if direction is None else direction.start)
        for sentence, direction in zip(bundle.golden, found, strict=True)
    ]
    original = open_original(checkpoint, load_tokenizer(bundle))
    engine = SyncEngine(load_sessions(bundle, threads=1), ROWS)
    for size in (1, beam_size):
        longest = manifest.max_target_tokens
        specs = [
            SequenceSpec(
                source.source_ids,
                SearchOptions(
                    max_target_tokens=longest,
                    min_target_tokens=len(source.start) + original.min_tokens if original.min_tokens else 0,
                    beam_size=size,
                    target_prefix=source.start,
                    start_tokens=len(source.start),
                ),
            )
            for source in sources
        ]
        answers = engine.translate(specs, ROWS // size, lambda _: None)
        ours = [answer.target_ids[len(source.start) :] for answer, source in zip(answers, sources, strict=True)]
        theirs = original.translate(sources, size, longest)
        rows = zip(sources, ours, theirs, strict=True)
        different = [source.text for source, mine, other in rows if mine != other]
        search = "greedy" if size == 1 else f"beam {size}"
        yield _outcome(f"{original.library}, {search}", original.library, len(sources), different, minimum_identical)


def _outcome(check: str, library: str, count: int, different: Sequence[str], minimum: float) -> Outcome:
    same = count - len(different)
    passed = same >= minimum * count
    figure = f"{same} of {count} golden sentences have the tokens of {library} ({minimum:.1%} required)"
    return Outcome(check, verdict_of(passed), figure, None if passed else different[0])


def open_original(checkpoint: Path, tokenizer: Any) -> "TransformersModel | CTranslate2Model":
    """Loads a checkpoint into its library; raises RunError if the library is not installed."""
    is_ctranslate2 = (checkpoint / "model.bin").is_file()
    needed = ("ctranslate2",) if is_ctranslate2 else ("transformers", "torch")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise RunError(f"original: requires {' and '.join(missing)}: pip install {' '.join(missing)}")
    return CTranslate2Model(checkpoint, tokenizer) if is_ctranslate2 else TransformersModel(checkpoint)


class TransformersModel:
    """A checkpoint in the library `transformers`; its shortest translation has `min_tokens`.

    Its search is set to rank by mean log-probability, to stop at the first finished beam, and not to force an end.
    """

    library = "transformers"
    min_tokens = 0

    def __init__(self, checkpoint: Path) -> None:
        from transformers import AutoModelForSeq2SeqLM  # noqa: PLC0415 - a library of its own

        self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(checkpoint, local_files_only=True).eval()

    def translate(self, sources: Sequence[SourceSentence], beam_size: int, max_tokens: int) -> Targets:
        """Returns the best translations without start and end tokens."""
        return [self._translate(source, beam_size, max_tokens) for source in sources]

    def _translate(self, source: SourceSentence, beam_size: int, max_tokens: int) -> tuple[int, ...]:
        import torch  # noqa: PLC0415

        model = self._model
        beam: dict[str, Any] = {"early_stopping": True, "length_penalty": 1.0} if beam_size > 1 else {}
        ids = torch.tensor([source.source_ids])
        with torch.inference_mode():
            row = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                num_beams=beam_size,
                max_length=max_tokens + 1,
                forced_bos_token_id=source.start[0] if source.start else None,
                forced_eos_token_id=None,
                renormalize_logits=True,
                do_sample=False,
                **beam,
            )[0].tolist()
        target = row[1 + len(source.start) :]
        eos_id = model.generation_config.eos_token_id
        ends = eos_id if isinstance(eos_id, list) else [eos_id]
        return tuple(target[:-1] if target and target[-1] in ends else target)


class CTranslate2Model:
    """A folder of CTranslate2, computed in float32. It never ends a translation right after its forced start."""

    library = "ctranslate2"
    min_tokens = 1

    def __init__(self, folder: Path, tokenizer: PieceTokenizer) -> None:
        from ctranslate2 import Translator  # noqa: PLC0415 - a library of its own

        self._translator = Translator(str(folder), compute_type="float32", intra_threads=1)
        self._tokenizer = tokenizer
        config = (folder / "config.json").read_text(encoding="utf-8") if (folder / "config.json").is_file() else ""
        self._adds_end = '"add_source_eos": true' in config

    def translate(self, sources: Sequence[SourceSentence], beam_size: int, max_tokens: int) -> Targets:
        """Returns the best translations without start and end tokens."""
        source_pieces, target_pieces = self._tokenizer.source_pieces, self._tokenizer.target_pieces
        given = [[source_pieces[token] for token in source.source_ids] for source in sources]
        starts = [[target_pieces[token] for token in source.start] for source in sources]
        results = self._translator.translate_batch(
            [pieces[:-1] if self._adds_end else pieces for pieces in given],
            target_prefix=starts,
            beam_size=beam_size,
            max_decoding_length=max_tokens,
            length_penalty=1.0,
        )
        ids = {piece: number for number, piece in enumerate(target_pieces)}
        found = [result.hypotheses[0][len(start) :] for result, start in zip(results, starts, strict=True)]
        return [tuple(ids[piece] for piece in pieces) for pieces in found]
