"""The translator for asyncio gives the results of the blocking one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from dragoman import AsyncTranslator, ClosedError, InvalidArgumentError, Translator
from tests.library.conftest import BUNDLE, TEXTS
from tests.support.paths import ROOT

INCLUDED = ROOT / "bundles" / "included"


def test_calls_run_concurrently_and_iterables_may_be_asynchronous(translator: Translator) -> None:
    async def arriving() -> AsyncIterator[str]:
        for text in TEXTS:
            await asyncio.sleep(0)
            yield text

    async def main() -> None:
        async with AsyncTranslator(BUNDLE) as opened:
            alone = asyncio.create_task(opened.translate(TEXTS[7]))
            listed = await opened.translate(TEXTS)
            assert await alone == listed[7]
            assert [result async for result in opened.translate_iterable(arriving())] == listed
            async with aclosing(opened.translate_iterable(TEXTS)) as results:
                assert await anext(results) == listed[0]
            assert listed == translator.translate(TEXTS)
        with pytest.raises(ClosedError):
            await opened.translate("A man.")

    asyncio.run(main())


def test_several_models_translate_their_own_directions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path))

    async def main() -> None:
        async with AsyncTranslator(BUNDLE, "included", offline=True, engines=1) as opened:
            german = await opened.translate("A man is sleeping.", source_language="en", target_language="de")
            french = await opened.translate("A man is sleeping.", source_language="en", target_language="fr")
            assert german.text == "Ein Mann schläft."
            assert french.text != german.text
            with pytest.raises(InvalidArgumentError, match="target_language"):
                await opened.translate("A man.", source_language="en", target_language="xx")

    asyncio.run(main())
