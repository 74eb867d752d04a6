"""Where an operator may want a bundle to be computed; what the words lead to is `serve.engine.devices`."""

from typing import Literal

DeviceChoice = Literal["auto", "cpu", "cuda"]
