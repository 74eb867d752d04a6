"""A translation memory: import, look-ups, recall of similar texts, memory, and how long the event loop waits.

The pairs are made up: words by Zipf's law, numbers and placeholders, and texts that differ from others in one word.
Look-ups are those of requests, in the threads of the server. The event loop waits for what a sleep of 1 ms takes more;
"idle" is a loop without work. The recall is the share of texts whose most similar pair, by a search of all, is found.
"""

import asyncio
import gc
import os
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import accumulate, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from pydantic import Field
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from benchmarks.harness.plan import BenchmarkPlan
from benchmarks.harness.process import proportional_bytes
from benchmarks.harness.report import Figures, Report, Table
from benchmarks.harness.rounds import measure_rounds
from dragoman.serve.app import GARBAGE_OBJECTS, SWITCH_SECONDS
from dragoman.serve.host import event_loop
from dragoman.serve.host.state import DATABASE, State
from dragoman.serve.host.system import trim_memory
from dragoman.serve.host.threads import RECALLS, SUGGESTIONS
from dragoman.serve.memory.entry import OPERATOR, Pair
from dragoman.serve.memory.pattern import read_pattern
from dragoman.serve.memory.similar import MIN_SIMILARITY
from dragoman.serve.memory.store import BATCH, MemoryStore, Wanted

NAME, PAIR = "benchmark", Pair("en", "de")
SEED, WORDS = 1, 20_000
TICK_SECONDS, IDLE_SECONDS = 0.001, 3.0
_SYLLABLES = ["ba", "con", "de", "er", "fi", "ing", "la", "mo", "ne", "or", "pre", "ra", "si", "tion", "un", "ver"]
# Texts that a new one may repeat with another word, and the share that does.
_RECENT, _REPEATED = 1000, 0.3


def texts(count: int) -> Iterator[str]:
    """Yields texts, the same ones every time."""
    draw, recent = random.Random(SEED), deque[str](maxlen=_RECENT)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) for _ in range(WORDS)]
    words[30], words[60] = "{count}", "%s"
    weights = list(accumulate(1 / (rank + 3) for rank in range(WORDS)))
    for _ in range(count):
        if recent and draw.random() < _REPEATED:
            text = edited(recent[draw.randrange(len(recent))], draw)
        else:
            length = min(60, 1 + int(draw.lognormvariate(2, 0.7)))
            text = " ".join(draw.choices(words, cum_weights=weights, k=length)).capitalize()
            text += f" {draw.randint(2, 999)}." if draw.random() < _REPEATED else "."
        recent.append(text)
        yield text


def edited(text: str, draw: random.Random) -> str:
    """Returns a text with another word in place of one."""
    words = text.split()
    words[draw.randrange(len(words))] = "".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4)))
    return " ".join(words)


class MemoriesPlan(BenchmarkPlan):
    """The size of the memory and of its load."""

    libraries = ("sqlalchemy", "rapidfuzz", "numpy", "uvloop")

    pairs: int = Field(1_000_000, ge=100, description="pairs of the memory")
    lookups: int = Field(2000, ge=10, description="equal texts of a turn; of similar ones, a tenth")
    clients: int = Field(4, ge=1, description="clients at a time, in turns next to those of a single one")
    sample: int = Field(300, ge=0, description="texts of the recall; 0: it is not measured")
    state_dir: Path | None = Field(None, description="folder that keeps the memory for the next call; null: none does")

    def measure(self) -> Report:
        """Imports the pairs, unless the folder has them, and looks texts up."""
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.set_threshold(GARBAGE_OBJECTS)
        with TemporaryDirectory(prefix="dragoman-") as temporary:
            folder = self.state_dir or Path(temporary)
            whole = {} if (folder / DATABASE).exists() else self._import(folder)
            with closing(State(folder)) as state:
                return self._measure(state, whole)

    def _measure(self, state: State, whole: Figures) -> Report:
        trim_memory()
        before = proportional_bytes(os.getpid())
        store, draw = MemoryStore(state), random.Random(SEED)
        count = store.list_all(OPERATOR)[0].entry_count
        firsts = [draw.randrange(count) for _ in range(self.lookups)]
        equal = [store.entries(OPERATOR, NAME, Wanted(), after=after, limit=1)[0].source for after in firsts]
        similar = [edited(edited(text, draw), draw) for text in equal]
        queries = {"idle": equal, "equal": equal, "similar": similar[: max(1, len(similar) // 10)]}
        turns = {"idle": 0, **{f"{kind}, {n} at a time": n for kind in ("equal", "similar") for n in (1, self.clients)}}
        found = measure_rounds(
            turns,
            self.rounds,
            "memories",
            lambda turn: event_loop.run(look_up(store, queries[turn.partition(",")[0]], turn, turns[turn])),
        )
        whole["more memory of the server, MiB"] = (proportional_bytes(os.getpid()) - before) / (1 << 20)
        if self.sample:
            whole |= recall_of(store, similar[: self.sample])
        table = Table("memory", {f"{count:,} pairs": [whole]})
        return Report([table, Table("look-ups", found)], f"clients: {self.clients}")

    def _import(self, folder: Path) -> Figures:
        folder.mkdir(exist_ok=True)
        file = folder / "pairs.tsv"
        with file.open("w", encoding="utf-8") as opened:
            opened.writelines(f"{text}\t{text[::-1]}\n" for text in texts(self.pairs))
        command = [sys.executable, "-m", "dragoman", "memory", "import", NAME, str(file), *PAIR, "--state-dir"]
        started = time.perf_counter()
        subprocess.run([*command, str(folder)], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
        return {"import, pairs/s": self.pairs / (time.perf_counter() - started)}


def recall_of(store: MemoryStore, queries: Sequence[str]) -> Figures:
    """Returns how many texts have a similar pair, by a search of all, and how many find the most similar one."""
    keys, best = [read_pattern(text).key for text in queries], np.zeros(len(queries), np.float32)
    stored = (read_pattern(entry.source).key for entry in store.texts(OPERATOR, NAME, PAIR))
    scorer = Levenshtein.normalized_similarity
    while chunk := list(islice(stored, BATCH)):
        best = np.maximum(best, cdist(keys, chunk, scorer=scorer, score_cutoff=MIN_SIMILARITY, workers=-1).max(axis=1))
    recall = store.recall(OPERATOR, [NAME], PAIR)
    ours = [max((item.similarity for item in recall.find_similar(text)), default=0.0) for text in queries]
    reached = (best > 0) & np.isclose(np.array(ours, np.float32), best)
    return {"texts with similar pairs": int((best > 0).sum()), "of them found": int(reached.sum())}


async def look_up(store: MemoryStore, queries: Sequence[str], turn: str, clients: int) -> Figures:
    """Returns the latencies of look-ups, and the waits of the event loop meanwhile; without clients, it sleeps."""
    seconds, waits, left = list[float](), list[float](), iter(queries)

    async def look_up_next() -> None:
        for text in left:
            started = time.perf_counter()
            recall = await RECALLS.run(store.recall, OPERATOR, [NAME], PAIR)
            if turn.startswith("similar"):
                await SUGGESTIONS.run(recall.find_similar, text)
            else:
                await RECALLS.run(recall.find, {text: read_pattern(text)})
            seconds.append(time.perf_counter() - started)

    done = asyncio.gather(
        *(look_up_next() for _ in range(clients)), *([] if clients else [asyncio.sleep(IDLE_SECONDS)])
    )
    while not done.done():
        started = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        waits.append(time.perf_counter() - started - TICK_SECONDS)
    await done
    figures = Figures()
    for name, found in (("", seconds), ("event loop waits, ", waits)):
        for label, percent in (("p50", 50), ("p99", 99), ("longest", 100)) if found else ():
            figures[f"{name}{label}, ms"] = 1000 * float(np.percentile(found, percent))
    return figures
