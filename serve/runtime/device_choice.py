"""Where an operator may want a bundle to be computed; what the words lead to is `serve.runtime.placement`."""

from typing import Literal

DeviceChoice = Literal["auto", "cpu", "cuda"]
