"""The interface of Google Translate, version 2, for its clients. `docs/compatibility.md` lists the differences."""
