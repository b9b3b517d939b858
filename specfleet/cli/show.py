"""show: what a scenario really runs."""

from experiments.console.printing import print_json, print_table
from specfleet.cli.options import AsJson, Changes, ScenarioFile, settings


def show(scenario: ScenarioFile, changes: Changes = None, as_json: AsJson = False) -> None:
    """Print the resolved fleet: stations, times, links, rules.

    Both worlds build from exactly that.
    """
    from fleet.scenario.show import describe_fleet
    from specfleet import show

    fleet = show(scenario, settings(changes))
    if as_json:
        print_json(fleet)
    else:
        rows = describe_fleet(fleet)
        places = ["", *(place for place, _, _ in rows)]  # of the row above
        once = [
            ("" if place == above else place, what, value)
            for above, (place, what, value) in zip(places, rows, strict=False)
        ]
        print_table(f"{scenario}, resolved", ("where", "what", "value"), once, texts=3)
