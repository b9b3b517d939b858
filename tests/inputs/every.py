"""All kinds of files, those of the engine included."""

from tests.inputs.engine_kinds import ENGINE_KINDS
from tests.inputs.kinds import KINDS

EVERY = KINDS | ENGINE_KINDS
