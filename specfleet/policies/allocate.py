"""How many tokens to draft for the session that is served: its speculation length."""

import msgspec


class Fixed(msgspec.Struct, frozen=True, tag="fixed", tag_field="policy", forbid_unknown_fields=True):
    """The same depth d for every round, as in StarSD."""

    depth: int

    def speculation_length(self) -> int:
        """Draft tokens of the next round."""
        return self.depth


Allocation = Fixed
