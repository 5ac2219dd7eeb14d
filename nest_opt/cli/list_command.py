"""`nest-opt list`: the names that `new` and `solve` know."""

import click

from nest_opt.cli.group import ChoiceGroup, json_option

_SUMMARIES = {
    "models": "Models, with their parameters and default sequence length.",
    "clusters": "Kinds of clusters: accelerator, unit that devices come in, network levels.",
    "accelerators": "Accelerators: peak compute and what of it is attained, memory, links.",
}


class _CatalogueGroup(ChoiceGroup):
    noun = "catalogue"


@click.group(
    "list", cls=_CatalogueGroup, invoke_without_command=True, subcommand_metavar="CATALOGUE"
)
@click.pass_context
def list_command(ctx: click.Context) -> None:
    """List the models, clusters and accelerators that have names."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _command(name: str, summary: str) -> click.Command:
    @json_option
    def run(as_json: bool) -> int:
        return _list(name, as_json)

    run.__doc__ = summary
    return click.command(name)(run)


def _list(name: str, as_json: bool) -> int:
    from nest_opt.cli.catalogue_tables import CATALOGUES

    catalogue = CATALOGUES[name]
    if as_json:
        from nest_opt.cli.json_output import print_json

        print_json({"status": "listed", name: catalogue.objects()})
    else:
        from nest_opt.cli.console import print_report

        print_report(catalogue.table())
    return 0


for _name, _summary in _SUMMARIES.items():
    list_command.add_command(_command(_name, _summary))
