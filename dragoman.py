"""The front door: one command line whose subcommands import their package only when they are called."""

import signal
import sys
from importlib import import_module
from inspect import getdoc

from pydantic import ValidationError
from pydantic_settings import BaseSettings, CliApp, CliSettingsSource, SettingsError

COMMANDS = {
    "corpus": ("model.demo.corpus:CorpusCommand", "write the demo corpus: English-German sentence pairs"),
    "data": ("model.data.report:DataCommand", "tell what is in parallel text, and what cleaning leaves out"),
    "train": ("model.training.train:TrainCommand", "train a Transformer on parallel text"),
    "export": ("export.command:ExportCommand", "turn a trained model into a bundle that can be served"),
    "inspect": (
        "export.inspect.command:InspectCommand",
        "tell what is in a bundle: graphs, decoder step, memory",
    ),
    "verify": (
        "export.verify.command:VerifyCommand",
        "prove a bundle: its PyTorch model's answers, in any company",
    ),
    "evaluate": (
        "export.evaluate.command:EvaluateCommand",
        "measure how well a system translates: BLEU, chrF, significance",
    ),
    "serve": ("serve.command:ServeCommand", "serve one bundle, or a folder of them, over gRPC and REST"),
    "translate": ("serve.clients.translate:TranslateCommand", "translate standard input line by line"),
    "attention": (
        "examples.attention.command:AttentionCommand",
        "compare kinds of attention: maps, costs, quality, speed",
    ),
    "throughput": (
        "benchmarks.throughput:ThroughputCommand",
        "measure training beside torch.nn.Transformer",
    ),
    "profile": ("benchmarks.profiling:ProfileCommand", "tell where the time of an engine's step goes"),
    "bench graphs": (
        "benchmarks.graphs:BenchGraphsCommand",
        "measure exported graphs beside CTranslate2 with the same weights",
    ),
    "bench device": (
        "benchmarks.device:BenchDeviceCommand",
        "measure a bundle where it is served, a GPU or the CPU, beside PyTorch and beside the floor of its steps",
    ),
    "bench offline": (
        "benchmarks.offline:BenchOfflineCommand",
        "measure the engines beside CTranslate2, PyTorch, transformers and Optimum with the same weights",
    ),
    "bench online": (
        "benchmarks.online:BenchOnlineCommand",
        "measure the server beside others under the same open-loop load",
    ),
    "bench replicas": (
        "benchmarks.replicas:BenchReplicasCommand",
        "measure several servers of one bundle on the same CPUs, and what a million sentences cost",
    ),
    "bench scheduling": (
        "benchmarks.scheduling:BenchSchedulingCommand",
        "measure how the engines share their time out between requests",
    ),
    "bench service": (
        "benchmarks.service:BenchServiceCommand",
        "measure what the service costs over its bare engine",
    ),
    "load": ("loadtest.command:LoadCommand", "send load to a server and report latencies and capacity"),
    "load self-test": (
        "loadtest.self_test:SelfTestCommand",
        "prove the load generator on a server that stands still",
    ),
    "load chaos": ("loadtest.reliability.chaos_command:ChaosCommand", "kill and stall server and clients under load"),
    "load report": ("loadtest.report_command:LoadReportCommand", "compare what loads found on one page"),
    "load soak": (
        "loadtest.reliability.soak:SoakCommand",
        "load a server for long with good and bad requests, and compare the counts",
    ),
    "demo": ("serve.demo:DemoCommand", "serve a bundle, translate a few sentences, keep serving"),
}
# The modules of commands that start servers and clients in processes of their own, or write into folders aside.
LEAVING_THINGS = ("export.", "loadtest.", "benchmarks.", "serve.demo:")
# As shells say it.
TERMINATED = 128 + signal.SIGTERM


def main() -> None:
    """Runs the subcommand named by the first argument.

    Raises:
        SystemExit: with 0 after --help, 1 after a failure that was explained, 2 after wrong usage.
    """
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        raise SystemExit(0 if arguments else 2)
    # The name of a command has one word or two.
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in COMMANDS:
            if COMMANDS[name][0].startswith(LEAVING_THINGS):
                # What they started or only half wrote has to go with them.
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
            run(name, arguments[words:])
            return
    print(f"{usage()}\n\ndragoman: {arguments[0]!r} is not a command", file=sys.stderr)
    raise SystemExit(2)


def usage() -> str:
    """Returns the list of subcommands."""
    rows = "\n".join(f"  {name:16} {summary}" for name, (_, summary) in COMMANDS.items())
    return (
        f"usage: dragoman COMMAND [OPTION ...]\n\n{rows}\n\n`dragoman COMMAND --help` tells the options of a command."
    )


def run(name: str, arguments: list[str]) -> None:
    """Parses the arguments of a subcommand and runs it.

    Raises:
        SystemExit: naming the option and what was expected, if the arguments are not valid.
    """
    command = load_command(name)
    parser: CliSettingsSource[object] = CliSettingsSource(
        command,
        cli_prog_name=f"dragoman {name}",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
    )
    if hasattr(command, "arrange_help"):
        command.arrange_help(parser.root_parser)
    try:
        CliApp.run(command, cli_args=arguments, cli_settings_source=parser)
    except ValidationError as error:
        problems = "\n".join(_explain(name, dict(problem)) for problem in error.errors())
        print(problems, file=sys.stderr)
        raise SystemExit(2) from error
    except SettingsError as error:  # of a list or a table in the environment
        print(f"dragoman {name}: {error}, expected JSON", file=sys.stderr)
        raise SystemExit(2) from error


def load_command(name: str) -> type[BaseSettings]:
    """Imports the class of a subcommand."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    command: type[BaseSettings] = getattr(import_module(module), attribute)
    command.__doc__ = getdoc(command)  # the text of --help, without the indentation of the source
    return command


def _explain(name: str, problem: dict[str, object]) -> str:
    location = problem["loc"]
    # Of a place in the configuration only what is also part of an option's name.
    parts = [part for part in map(str, location) if "=" not in part] if isinstance(location, tuple) else []
    field = ".".join(parts).replace("_", "-")
    given = "" if problem["type"] == "missing" else f" (given: {problem['input']!r})"
    return f"dragoman {name}: --{field}: {problem['msg']}{given}"


if __name__ == "__main__":
    main()
