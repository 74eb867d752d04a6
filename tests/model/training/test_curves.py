"""The plot of a run shows its logs, with the later value of a step logged twice."""

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from dragoman.model.training.curves import plot_curves


def write_log(folder: Path, name: str, values: dict[int, float]) -> None:
    with SummaryWriter(str(folder)) as writer:
        for step, value in values.items():
            writer.add_scalar(name, value, step)


def test_every_measure_that_was_logged_is_drawn_and_no_other(tmp_path: Path) -> None:
    write_log(tmp_path, "loss", {50: 5.0, 100: 4.0})
    write_log(tmp_path, "validation_bleu", {100: 30.0})
    plot_curves(tmp_path, tmp_path / "curves.svg")
    picture = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert "<!-- loss -->" in picture
    assert "<!-- validation bleu -->" in picture
    assert "learning rate" not in picture


def test_a_run_that_was_resumed_is_drawn_as_one(tmp_path: Path) -> None:
    """Steps that were logged again after an interruption draw no line back."""
    unbroken, resumed = tmp_path / "unbroken", tmp_path / "resumed"
    write_log(unbroken, "loss", {50: 5.0, 100: 4.0, 150: 3.0})
    write_log(resumed, "loss", {50: 5.0, 100: 4.5})
    write_log(resumed, "loss", {100: 4.0, 150: 3.0})
    paths = []
    for folder in (unbroken, resumed):
        plot_curves(folder, folder / "curves.svg")
        lines = (folder / "curves.svg").read_text(encoding="utf-8").splitlines()
        paths.append([line for line in lines if line.lstrip().startswith(("L ", "M ", '<path d="M'))])
    assert paths[0] == paths[1]
