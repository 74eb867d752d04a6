"""Reads the TensorBoard logs of a run."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def read_measures(logs: Path) -> dict[str, dict[int, float]]:
    """Returns the logged values by measure and step, in order; of a step that is logged again, the later one."""
    events = EventAccumulator(str(logs), size_guidance={"scalars": 0})
    events.Reload()
    return {
        name: dict(sorted({event.step: event.value for event in events.Scalars(name)}.items()))
        for name in events.Tags()["scalars"]
    }
