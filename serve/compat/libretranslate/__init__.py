"""The interface of LibreTranslate for its clients. `docs/compatibility.md` lists the differences."""
