"""Links between the words of a sentence pair, and the alignment error rate. Works on text, not on tokens.

A line of a file of links belongs to one sentence pair. It has a link `i-j` for source word i and target word j that
translate each other (Pharaoh format). Words are separated by blanks and counted from 0; punctuation belongs to the word
before it. References also have links `ipj`: possible, but not required (Och and Ney 2003, section 6.1).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Source word, target word.
Link = tuple[int, int]

_LINK = re.compile(r"(\d{1,6})([-p])(\d{1,6})")


@dataclass(frozen=True, slots=True)
class ReferenceLinks:
    """The links of a sentence pair, made by hand; `possible` includes the sure ones."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def parse_links(line: str) -> ReferenceLinks:
    """Reads a line of links, none if it is empty; raises ValueError if the line has something else."""
    sure, possible = set(), set()
    for text in line.split():
        match = _LINK.fullmatch(text)
        if match is None:
            raise ValueError(f"expected links i-j, or ipj for possible ones, got {text!r}")
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return ReferenceLinks(frozenset(sure), frozenset(possible))


def format_links(links: Iterable[Link]) -> str:
    """Returns a line for `parse_links`, in the order of the source."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def check_links(links: Iterable[Link], source: str, target: str) -> None:
    """Checks that both words of each link exist; raises ValueError if a link goes beyond the words of a side."""
    source_words, target_words = len(source.split()), len(target.split())
    for i, j in links:
        if i >= source_words or j >= target_words:
            raise ValueError(f"expected links of {source_words} source and {target_words} target words, got {i}-{j}")


@dataclass(frozen=True, slots=True)
class AlignmentQuality:
    """The agreement of links with a reference, each from 0 to 1.

    Attributes:
        error_rate: AER, 1 - (|A and S| + |A and P|) / (|A| + |S|), for links A and the reference's sure links S and
            possible links P (Och and Ney 2003, equation 21). Lower is better.
        precision: |A and P| / |A|.
        recall: |A and S| / |S|.
    """

    error_rate: float
    precision: float
    recall: float


def alignment_quality(found: Sequence[frozenset[Link]], references: Sequence[ReferenceLinks]) -> AlignmentQuality:
    """Compares the links of sentence pairs with equally many references; counts are summed over all pairs."""
    pairs = list(zip(found, references, strict=True))
    count = sum(len(links) for links in found)
    sure = sum(len(reference.sure) for reference in references)
    found_sure = sum(len(links & reference.sure) for links, reference in pairs)
    found_possible = sum(len(links & reference.possible) for links, reference in pairs)
    return AlignmentQuality(
        1 - (found_sure + found_possible) / (count + sure) if count + sure else 0.0,
        found_possible / count if count else 1.0,
        found_sure / sure if sure else 1.0,
    )
