"""BLEU, chrF and exact matches against one reference, with confidence intervals and paired tests, by sacreBLEU.

Scores are computed on cased, detokenized text. Intervals and p-values come from bootstrap resampling (Koehn 2004) with
a fixed seed; the signature names the settings. `measure_as_literature` computes BLEU as papers on Multi30k report it:
on lowercased, punctuation-normalized text in Moses' tokens. Such a score is not comparable with sacreBLEU's default.
With these steps the references of the test set of 2016 have exactly the published numbers of tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result
from sacremoses import MosesPunctNormalizer, MosesTokenizer


@dataclass(frozen=True, slots=True)
class Quality:
    """BLEU (Papineni et al. 2002) and chrF (Popovic 2015), 0 to 100, and the share of exact translations, 0 to 1.

    `length_ratio` is tokens of all translations / tokens of all references, as BLEU tokenizes; below 1, BLEU's brevity
    penalty applies.
    """

    bleu: float
    chrf: float
    exact: float
    length_ratio: float


# sacreBLEU's tokenizers of languages without blanks between words, and of Korean, whose words have many forms. Its own
# choices for Japanese and Korean need further packages.
_CHINESE = ("zh", "zho", "cmn", "yue")
_BY_CHARACTER = ("ja", "jpn", "ko", "kor", "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod", "dz", "dzo")
_TOKENIZERS = {**dict.fromkeys(_CHINESE, "zh"), **dict.fromkeys(_BY_CHARACTER, "char")}


def bleu_metric(language: str) -> BLEU:
    """Returns BLEU with the tokenizer of a target language."""
    return BLEU(tokenize=_TOKENIZERS.get(language, BLEU.TOKENIZER_DEFAULT))


def score(translations: Sequence[str], references: Sequence[str], languages: Sequence[str] = ()) -> Quality:
    """Scores translations against equally many references, at least one.

    `languages` are the target languages of all lines; if omitted, their words are separated by blanks. BLEU counts the
    lines of all languages together, each in the tokens of its language.
    """
    bleu = _bleu(translations, references, languages)
    chrf = CHRF().corpus_score(translations, [references])
    exact = sum(
        translation == reference for translation, reference in zip(translations, references, strict=True)
    ) / len(references)
    return Quality(bleu.score, chrf.score, exact, bleu.ratio)


def _bleu(translations: Sequence[str], references: Sequence[str], languages: Sequence[str]) -> BLEUScore:
    metric = BLEU()
    if languages:
        tokenizers = {language: bleu_metric(language).tokenizer for language in set(languages)}
        translations, references = (
            [tokenizers[language](line.rstrip()) for line, language in zip(lines, languages, strict=True)]
            for lines in (translations, references)
        )
        metric = BLEU(tokenize="none", force=True)
    found: BLEUScore = metric.corpus_score(translations, [references])
    return found


RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A score on all sentences and its 95 % confidence interval, 0 to 100."""

    score: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.score:.2f} ± {(self.high - self.low) / 2:.2f}"


@dataclass(frozen=True, slots=True)
class Measure:
    """The result of one metric for a system and an optional baseline.

    `signature` is sacreBLEU's. `p_value` is the probability of a difference at least this large by the choice of
    sentences alone.
    """

    signature: str
    system: Estimate
    baseline: Estimate | None
    p_value: float | None


def measure(
    metric: Metric, translations: Sequence[str], references: Sequence[str], baseline: Sequence[str] | None = None
) -> Measure:
    """Scores translations and compares them with those of a baseline; all lists have equal length, at least one."""
    systems = [("system", translations)] if baseline is None else [("baseline", baseline), ("system", translations)]
    test = PairedTest(systems, {"metric": metric}, [references], test_type="bs", n_samples=RESAMPLES)
    signatures, scores = test()
    (signature,) = signatures.values()
    *others, result = (result for column in scores.values() for result in column if isinstance(result, Result))
    system = _estimate(result)
    if not others:
        return Measure(str(signature), system, None, None)
    other = _estimate(others[0])
    # sacreBLEU counts only resamples with a strictly larger difference, so two equal systems would get a p-value near
    # 0: no difference of zero is larger than zero.
    p_value = 1.0 if system.score == other.score else result.p_value
    return Measure(str(signature), system, other, p_value)


def _estimate(result: Result) -> Estimate:
    if result.mean is None or result.ci is None:
        raise AssertionError("sacreBLEU returned no resamples")
    # `ci` is half the width of the interval around the mean of the resamples.
    mean, half_width = float(result.mean), float(result.ci)
    return Estimate(float(result.score), mean - half_width, mean + half_width)


def measure_as_literature(
    translations: Sequence[str], references: Sequence[str], language: str, baseline: Sequence[str] | None = None
) -> Measure:
    """Computes BLEU as papers on Multi30k do. The arguments are those of `measure`.

    `language` is the ISO 639-1 code of the references. The signature includes the text preparation.
    """
    prepared, prepared_references = (tokenize_as_literature(lines, language) for lines in (translations, references))
    others = None if baseline is None else tokenize_as_literature(baseline, language)
    measured = measure(BLEU(tokenize="none", force=True), prepared, prepared_references, others)
    preparation = f"prepared:lowercase+moses_normalize+moses_tokenize|sacremoses:{version('sacremoses')}"
    return replace(measured, signature=f"{measured.signature}|{preparation}")


def tokenize_as_literature(lines: Sequence[str], language: str) -> list[str]:
    """Lowercases each line, normalizes its punctuation and separates its tokens by spaces."""
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower().strip()), escape=True, return_str=True) for line in lines
    ]
