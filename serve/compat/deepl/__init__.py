"""The interface of DeepL for its clients. `docs/compatibility.md` lists the differences."""
