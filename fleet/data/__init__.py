"""Files that ship with the project; `shipped.py` lists them.

scenarios/   TOML, one a system; each explains its keys
profiles/    JSON: step times of machines, each number with its source
devices/     TOML: figures of devices from data sheets
engines/     TOML: shares of a device's peaks that an engine reaches
shapes/      TOML, one a family of models: keys of their config.json
"""
