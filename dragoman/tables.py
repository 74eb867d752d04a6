"""Tables of texts and names in YAML, next to the modules that use them."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

try:  # The loader in C takes a tenth of the time.
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

Model = TypeVar("Model", bound=BaseModel)


# The classes of a module have one table.
@lru_cache(maxsize=1)
def read_table(module: str, name: str) -> Any:
    """Returns the content of a file next to a module, whose `__file__` is given."""
    return yaml.load(Path(module).with_name(name).read_text("utf-8"), Loader=SafeLoader)


def described(module: str) -> Callable[[type[Model]], type[Model]]:
    """Returns a decorator for a class: it describes the fields, by the table with the name of its module.

    The table has the texts by class and field. Subclasses have them too. `module` is the `__file__` of the module.
    """

    def describe(model: type[Model]) -> type[Model]:
        for name, text in read_table(module, f"{Path(module).stem}.yaml")[model.__name__].items():
            model.model_fields[name].description = text
        return model

    return describe
