"""The probe of a container, on a server outside of one."""

from pathlib import Path

import pytest

from deploy import container_probe
from tests.support.paths import ROOT
from tests.support.served import serve


def test_the_probe_checks_the_translations_of_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(ROOT / "bundles" / "multi30k-en-de", "--state-dir", str(tmp_path)) as server:
        monkeypatch.setattr(container_probe, "REST", f"http://127.0.0.1:{server.ready['http_port']}")
        (translation,) = container_probe.post([container_probe.SENTENCE])
        container_probe.check_documents(translation)
        with pytest.raises(SystemExit, match="a Markdown document is translated"):
            container_probe.check_documents(f"not {translation}")


def test_a_document_that_is_not_translated_ends_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(ROOT / "bundles" / "multi30k-en-de", "--state-dir", str(tmp_path)) as server:
        monkeypatch.setattr(container_probe, "REST", f"http://127.0.0.1:{server.ready['http_port']}")
        with pytest.raises(SystemExit, match=r"damaged\.docx is translated"):
            container_probe.translate_document("damaged.docx", b"no package")
