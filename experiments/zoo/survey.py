"""Every type of causal language models that transformers knows: admitted and tried, or refused with a reason."""

from collections.abc import Iterator, Sequence

import msgspec
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.decoding.admitted import ADMITTED, KNOWN, reason_of
from experiments.zoo.numbers import largest_difference
from experiments.zoo.species import VARIANTS, network_of, species
from experiments.zoo.texts import MODES, modes_equal

TOLERANCE = 1e-9  # of probabilities
VARIANT_MODES = ("plain", "chain", "batch, EqSpec")  # of other configurations of a type that all modes were tried with


class Row(msgspec.Struct, frozen=True):
    """A type, or a variant of one: why it is refused, or what trying it found.

    `difference`: the largest one of next-token probabilities; `texts`: by mode, whether they are transformers' own.
    """

    name: str
    reason: str = ""
    difference: float = 0.0
    texts: dict[str, bool] = {}

    @property
    def is_right(self) -> bool:
        """Whether this is refused, or proved."""
        return bool(self.reason) or (self.difference < TOLERANCE and all(self.texts.values()))


def names_of() -> list[str]:
    """Return all types of the installed transformers, and the variants of admitted ones."""
    return [*sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), *VARIANTS]


def survey(names: Sequence[str]) -> Iterator[Row]:
    """Yield the row of each type or variant."""
    for name in names:
        yield tried(name) if name in ADMITTED or name in VARIANTS else Row(name, refused(name))


def tried(name: str) -> Row:
    """Try an admitted type, in all modes, or a variant."""
    network = network_of(species(name))
    modes = VARIANT_MODES if name in VARIANTS else MODES
    return Row(name, difference=largest_difference(network), texts=modes_equal(network, modes))


def refused(kind: str) -> str:
    """Return why a type is refused."""
    return reason_of(kind, None if kind in KNOWN else CONFIG_MAPPING[kind]())
