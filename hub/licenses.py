"""Licenses of models: which ones forbid commercial use."""

import re

# CC BY-NC and its variants, and names of research licenses.
_NON_COMMERCIAL = re.compile(r"(^|[^a-z])(nc|non-?commercial|research)([^a-z]|$)", re.IGNORECASE)


def forbids_commercial_use(license_name: str | None) -> bool:
    """Returns whether an identifier as `cc-by-nc-4.0` names a license for non-commercial use only."""
    return license_name is not None and _NON_COMMERCIAL.search(license_name) is not None


def describe_license(license_name: str | None) -> str:
    """Returns a license as a line shows it before a download."""
    if license_name is None:
        return "license: not stated, see the page of the model"
    warning = "; it forbids commercial use" if forbids_commercial_use(license_name) else ""
    return f"license: {license_name}{warning}"


def short_license(name: str | None) -> str:
    """Returns a license as a table shows it."""
    return f"{name} (not for commercial use)" if forbids_commercial_use(name) else name or ""
