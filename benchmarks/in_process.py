"""`python -m benchmarks.in_process FILE BUNDLE SLOTS SECONDS SOURCE TARGET`: translates a list again and again.

Standard input has the texts of the list as JSON; `dragoman.AsyncTranslator` translates them. The stages of the main
thread, which runs the event loop, are sampled into FILE. Prints the figures as JSON.
"""

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.harness.report import Figures
from benchmarks.served import Reading, stage_figures
from benchmarks.stages import sample_into
from dragoman import AsyncTranslator
from dragoman.loadtest.server_metrics import ServerState
from dragoman.serve.host import event_loop


async def measure(samples: Path, bundle: str, slots: str, seconds: str, *languages: str) -> Figures:
    """Returns throughput and the CPU time of a text by stage; one engine has one thread."""
    texts: list[str] = json.load(sys.stdin)
    source, target = languages
    async with AsyncTranslator(bundle, engines=1, threads_per_engine=1, slots=int(slots)) as translator:
        answered, readings = 0, list[Reading]()
        while not readings or readings[-1].seconds < readings[0].seconds + float(seconds):
            answered += len(await translator.translate(texts, source_language=source, target_language=target))
            state = ServerState({"process_cpu_seconds_total": time.process_time()})
            readings.append(Reading.of(os.getpid(), answered, state, samples))
    first, last = readings[0], readings[-1]
    rate = (last.answered - first.answered) / (last.seconds - first.seconds)
    return {"sentences/s": rate, **stage_figures(first, last)}


if __name__ == "__main__":
    file, *arguments = sys.argv[1:]
    sample_into(Path(file))
    print(json.dumps(event_loop.run(measure(Path(file), *arguments))))
