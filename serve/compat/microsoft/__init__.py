"""The interface of Microsoft Translator, version 3, for its clients. `docs/compatibility.md` lists the differences."""
