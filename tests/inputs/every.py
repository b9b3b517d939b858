"""All kinds of files: our own, records of other engines, and those that only the engine reads."""

from tests.inputs.engine_kinds import ENGINE_KINDS
from tests.inputs.kinds import KINDS
from tests.inputs.reader_kinds import READER_KINDS

EVERY = KINDS | READER_KINDS | ENGINE_KINDS
