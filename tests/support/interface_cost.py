"""Measures what the interfaces of LibreTranslate and DeepL cost over `/v1/translate`: the same cached text by each.

Arguments: the bundle and the number of rounds. Prints the median time of a request per interface, in ms. A round asks
each interface once, on one connection that stays open.
"""

import json
import statistics
import sys
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from tests.support.served import serve

TEXT = "A man is walking."
REQUESTS: dict[str, tuple[str, object]] = {
    "/v1/translate": ("/v1/translate", {"text": [TEXT], "source_language": "en", "target_language": "de"}),
    "LibreTranslate": ("/translate", {"q": TEXT, "source": "en", "target": "de"}),
    "DeepL": ("/v2/translate", {"text": [TEXT], "source_lang": "EN", "target_lang": "DE"}),
}


def main(bundle: Path, rounds: int) -> None:
    """Prints a line per interface."""
    seconds: dict[str, list[float]] = {name: [] for name in REQUESTS}
    bodies = {name: (path, json.dumps(body)) for name, (path, body) in REQUESTS.items()}
    with (
        serve(bundle, "--result-cache-bytes", "1000000", "--slots", "4") as server,
        closing(HTTPConnection("127.0.0.1", server.ready["http_port"])) as connection,
    ):
        for number in range(rounds + rounds // 10):
            for name, (path, body) in bodies.items():
                started_seconds = time.perf_counter()
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.read()
                assert response.status == 200
                if number >= rounds // 10:
                    seconds[name].append(time.perf_counter() - started_seconds)
    for name, each in seconds.items():
        print(f"{name}: {1000 * statistics.median(each):.3f} ms")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
