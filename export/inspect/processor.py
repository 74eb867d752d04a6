"""What computes models on this machine: the native kernels and their instruction set, or standard operators and why."""

import platform

from dragoman.model.text_table import format_table
from dragoman.serve.native.library import instructions, library_path
from dragoman.serve.runtime.onnx_runtime import VERSION, why_no_kernels


def describe_processor() -> str:
    """Returns a table; raises InstructionsError if the environment names an instruction set that is missing."""
    reason = why_no_kernels()
    rows = [
        ["processor", platform.machine()],
        ["ONNX Runtime", VERSION],
        ["library", str(library_path() or "none")],
        ["instructions", "none" if reason else instructions()],
        ["models run on", "standard operators" if reason else "native kernels"],
    ]
    return format_table([*rows, ["because", reason]] if reason else rows, 2)
