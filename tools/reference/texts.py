"""What the reference pages say before their tables: Markdown, a paragraph an entry."""

PAGES = {
    "scenario.md": "every key of a scenario, with the policies and models that it can name",
    "profile.md": "the format of a profile: step times, links, and what makes steps slower",
    "metrics.md": "every metric with its unit and equation, the symbols of the papers, the analytic model's quantities",
    "records.md": "the record table, the run header and the signal file, column by column",
    "cli.md": "every command with its arguments, options and exit statuses",
}

MADE = "<!-- Made from the code by `python -m tools.reference`; change the docstrings, not this page. -->"

INDEX = """
What everything means, page by page. `specfleet explain WORD` prints the entry of any key, metric, symbol, column,
policy or model in a terminal.
"""

SCENARIOS = """
A scenario is a TOML file. On the command line, `--set KEY=VALUE` changes any key by its dotted name. A policy or
model is a table that names it, such as `{policy = "at-most", sessions = 4}`; where it needs no parameters, its bare
name will do. An unknown key is an error that names the nearest ones. `specfleet init KIND` writes a scenario with all
of this as comments.
"""

PROFILES = """
A profile says what each step costs on a machine. `specfleet calibrate` writes one from measurements; `specfleet
profiles` lists those that ship. It is a JSON file, or the table `[profile]` of a scenario. Its models of acceptance
are described with the [scenarios](scenario.md#policies-and-models).
"""

METRICS = """
Metrics are computed from the records alone, the same for both worlds. A run counts from
[`measure.warm_up_share`](scenario.md#measure) of the time until its first stream has nothing left to do, up to then;
steps count by the moment they end, requests by the moment they complete. A metric that a run has nothing to say about
is left out. Some times have percentiles: `metrics["tpot_s"].p99` in Python is `tpot_p99_s` in sweeps, and as a name of
figures.
"""

SYMBOLS = "Those that are no metric. Keys of scenarios and quantities of the analytic model have symbols of their own."

ANALYTIC = "What `specfleet analytic` says of a star."

RECORDS = """
A run is one Parquet file: the record table, with the run header as JSON in the schema's metadata under `specfleet`.
"""

EVENTS = "What the column `event` says, besides `start`."

SIGNALS = """
The acceptance model [`signals`](scenario.md#signals-model) plays it back; `specfleet run --signals FILE` writes one.
"""
