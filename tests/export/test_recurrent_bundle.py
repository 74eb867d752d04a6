"""A recurrent model works with the same commands, bundle format and server."""

import math
from pathlib import Path

import pytest
from torch import Tensor

from dragoman import command_line
from dragoman.export.source_model import Exportable
from dragoman.model.config import RunConfig
from dragoman.model.network import recurrent
from dragoman.model.network.alignment import most_probable
from dragoman.model.network.recurrent import Recurrent
from dragoman.model.run import TrainedModel
from dragoman.model.search import generate_greedy
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.bundle import Bundle
from tests.support.comparisons import compare
from tests.support.recurrent_models import BAHDANAU, LUONG, Kind, RecurrentBundles, name_kind
from tests.support.toy import RANDOM_TEXTS, TOY_CONFIG, toy_sentences, toy_test_sentences, write_pairs

SENTENCES = 1200
# The lead between the weights of two positions. In a near tie, rounding decides which one hard attention chooses.
MIN_LEAD = 1e-3
OPTIONS = ["--model.architecture=recurrent", "--model.attention=additive", "--model.hard", "--model.d-model=64"]
OPTIONS += ["--model.dropout=0", "--model.max-source-tokens=32", "--model.max-target-tokens=24"]
OPTIONS += ["--tokenizer.vocabulary-size=100", "--training.max-steps=300", "--training.batch-tokens=400"]
OPTIONS += ["--training.learning-rate=0.01", "--training.warmup-steps=50", "--training.validation-every-steps=150"]


@pytest.mark.parametrize("kind", [LUONG, BAHDANAU], ids=name_kind)
def test_a_bundle_generates_the_tokens_of_pytorch(
    kind: Kind, tokenizer: Tokenizer, recurrent_bundles: RecurrentBundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, bundle = recurrent_bundles(kind)
    config = RunConfig(directions=TOY_CONFIG.directions, model=model.config)
    exportable = Exportable.of_run(TrainedModel(config, tokenizer, model, steps=0))
    texts = [" ".join(RANDOM_TEXTS[first:last]) for first in range(6) for last in range(first + 1, 7)]
    clear = [text for text in texts if smallest_lead(model, exportable.source_ids((), text), monkeypatch) > MIN_LEAD]
    comparisons = compare(bundle, exportable, clear)
    assert len(comparisons) > 10
    assert [comparison.text for comparison in comparisons if not comparison.identical] == []


def smallest_lead(model: Recurrent, source_ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> float:
    """Returns by how much the weight of a position that hard attention chooses exceeds the next one, at least.

    Without hard attention, and for sources that are too long, it is infinite.
    """
    leads = [math.inf]

    def record(weights: Tensor) -> Tensor:
        best = weights.topk(2, dim=-1).values
        leads.append(float((best[:, 0] - best[:, 1]).min()))
        return most_probable(weights)

    if len(source_ids) <= model.config.max_source_tokens:
        with monkeypatch.context() as patch:
            patch.setattr(recurrent, "most_probable", record)
            generate_greedy(model, [source_ids])
    return min(leads)


@pytest.mark.usefixtures("restored_logs")
def test_the_commands_train_export_verify_and_evaluate_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, bundle = tmp_path / "run", tmp_path / "bundle"
    data = write_pairs(tmp_path, "train", toy_sentences()[:SENTENCES])
    command_line.run("train", ["--data", data, "--out", str(run), *OPTIONS])
    command_line.run("export", [str(run), "--out", str(bundle)])
    test = write_pairs(tmp_path, "test", toy_test_sentences()[:100])
    few = ["--minimum-identical", "1", "--batches", "8"]
    command_line.run("verify", [str(bundle), "--run", str(run), "--data", test, *few])
    assert "100 of 100 translations have PyTorch's tokens" in capsys.readouterr().out
    command_line.run("evaluate", [str(bundle), "--data", test, "--minimum-exact", "0.7"])


def test_its_manifest_names_the_states(recurrent_bundle: Bundle) -> None:
    kinds = {state.name: state.kind for state in recurrent_bundle.manifest.states}
    assert kinds["annotations"] == "source"
    assert "recurrent" in kinds.values()
    assert "target" not in kinds.values()
