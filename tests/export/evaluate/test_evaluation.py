"""`Evaluation` and its table."""

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from dragoman.export.evaluate.command import evaluate, format_evaluations
from dragoman.model.data.corpus import Corpus
from dragoman.model.scoring import measure, measure_as_literature, score

CORPUS = Corpus(
    "en",
    "de",
    ["Two dogs run.", "A man sings a song.", "The sea is calm today."],
    ["Zwei Hunde rennen.", "Ein Mann singt ein Lied.", "Das Meer ist heute ruhig."],
)
OURS = ["Zwei Hunde rennen.", "Ein Mann singt das Lied.", "Das Meer ist heute ruhig."]
THEIRS = ["Zwei Katzen rennen.", "Ein Mann singt.", "das Meer ist ruhig heute."]


def columns(line: str) -> list[str]:
    """Returns the cells of a row; two or more spaces separate them."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_every_metric_is_measured_on_the_references() -> None:
    evaluation = evaluate(CORPUS, OURS, None, literature=True)
    assert evaluation.direction == "en-de"
    assert evaluation.sentences == 3
    assert evaluation.measures == {
        "BLEU": measure(BLEU(), OURS, CORPUS.targets),
        "chrF": measure(CHRF(), OURS, CORPUS.targets),
        "literature BLEU": measure_as_literature(OURS, CORPUS.targets, "de"),
    }
    assert evaluation.system == score(OURS, CORPUS.targets)
    assert evaluation.baseline is None


def test_the_table_has_a_row_for_each_direction() -> None:
    backwards = Corpus("de", "en", CORPUS.targets, CORPUS.sources)
    pairs = ((CORPUS, OURS), (backwards, backwards.targets))
    evaluations = [evaluate(corpus, translations, None, literature=False) for corpus, translations in pairs]
    heading, first, second = format_evaluations(evaluations).split("\n\n")[0].splitlines()
    assert columns(heading) == ["direction", "sentences", "BLEU", "chrF", "exact", "length"]
    measures = evaluations[0].measures
    bleu, chrf = str(measures["BLEU"].system), str(measures["chrF"].system)
    assert columns(first) == ["en-de", "3", bleu, chrf, "66.67%", "1.000"]
    assert columns(second) == ["de-en", "3", "100.00 ± 0.00", "100.00 ± 0.00", "100.00%", "1.000"]


def test_every_signature_of_a_metric_is_printed() -> None:
    """BLEU of Chinese has other tokens than that of German."""
    chinese = Corpus("en", "zh", ["Two dogs run on the field."], ["两只狗在田野上奔跑。"])
    found = [evaluate(CORPUS, OURS, None, literature=False), evaluate(chinese, chinese.targets, None, literature=False)]
    signatures = format_evaluations(found).split("\n\n")[1].splitlines()
    assert [columns(line)[0] for line in signatures] == ["BLEU", "BLEU", "chrF"]
    assert ["tok:13a" in line for line in signatures] == [True, False, False]
    assert "tok:zh" in signatures[1]


def test_a_comparison_has_two_rows_and_the_p_value_of_each_metric() -> None:
    evaluation = evaluate(CORPUS, OURS, THEIRS, literature=False)
    heading, ours, theirs = format_evaluations([evaluation]).split("\n\n")[0].splitlines()
    assert columns(heading) == ["direction", "system", "sentences", "BLEU", "p", "chrF", "p", "exact", "length"]
    bleu, chrf = evaluation.measures.values()
    p_values = f"{bleu.p_value:.3f}", f"{chrf.p_value:.3f}"
    assert columns(ours)[:3] == ["en-de", "system", "3"]
    assert columns(ours)[3:7] == [str(bleu.system), p_values[0], str(chrf.system), p_values[1]]
    assert columns(theirs) == ["en-de", "baseline", "3", str(bleu.baseline), str(chrf.baseline), "0.00%", "0.875"]
