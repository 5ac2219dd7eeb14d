"""The command group: every failure becomes a message and an exit code, never a traceback."""

import json
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from nest_opt.errors import ConsistencyError, NestOptError

EXIT_NO = 1
EXIT_INPUT = 2
EXIT_DEFECT = 3
# What a shell reports of a process that SIGINT or SIGPIPE ended.
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
)


class ChoiceGroup(click.Group):
    """A group that names its legal choices when it gets another."""

    noun = "command"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the choice, or say what there is."""
        if args and args[0] not in self.commands:
            legal = ", ".join(sorted(self.commands))
            ctx.fail(f"found {self.noun} {args[0]!r}, one of these is needed: {legal}")
        return super().resolve_command(ctx, args)


class FormatGroup(ChoiceGroup):
    """A group whose choices are formats of files."""

    noun = "format"


class CommandLine(ChoiceGroup):
    """The group of all commands, which return their exit codes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's own arguments."""
        ctx.meta["arguments"] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _fail(ctx, error)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and exit with its code."""
        try:
            code = super().invoke(ctx)
        except (NestOptError, click.UsageError) as error:
            _fail(ctx, error)
        except BrokenPipeError:
            _forget_standard_output()
            code = EXIT_BROKEN_PIPE
        except OSError as error:
            # Files are opened where their errors are told; what is left is the output.
            _forget_standard_output()
            click.echo(f"error: the output cannot be written ({error.strerror})", err=True)
            code = EXIT_INPUT
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            code = EXIT_INTERRUPTED
        ctx.exit(code or 0)


def _fail(ctx: click.Context, error: NestOptError | click.UsageError) -> NoReturn:
    """Print an error, as JSON too where that was asked for, and exit."""
    code = EXIT_DEFECT if isinstance(error, ConsistencyError) else EXIT_INPUT
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else ctx.command_path
        message, hint = _usage_text(error), f"usage: see {command} --help"
    else:
        message, hint = str(error), ""
    if code == EXIT_DEFECT:
        message = f"{message} (a defect of nest-opt; please report it with its input file)"
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(hint, err=True)
    if "--json" in ctx.meta["arguments"]:
        click.echo(json.dumps({"status": "error", "error": message}, indent=1))
    ctx.exit(code)


def _usage_text(error: click.UsageError) -> str:
    """Return a message, with what to do about arguments that were left over."""
    message = error.format_message()
    if not message.startswith("Got unexpected extra argument"):
        return message
    takes_fixes = error.ctx is not None and any(
        parameter.name == "fixes" for parameter in error.ctx.command.params
    )
    if takes_fixes and "=" in message:
        return f"{message}: write --fix before each KEY=VALUE, as in --fix tp=8 --fix pp=4"
    return f"{message}: remove what is not needed"


def _forget_standard_output() -> None:
    """Point standard output nowhere: what is buffered must not fail again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
