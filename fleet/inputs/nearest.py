"""The names nearest to one that is not known, for errors."""

from collections.abc import Iterable
from difflib import get_close_matches

ENGINES_WORDS = {"k": "drafters.depth", "num_speculative_tokens": "drafters.depth", "ngram": "drafters.kind",
                 "prefix": "verifiers.prefix_cache", "enable_prefix_caching": "verifiers.prefix_cache",
                 "lookup": "drafters.kind", "suffix": "drafters.kind", "block": "drafters.kind",
                 "eagle": "drafters.kind", "multi-turn": "workload.conversations",
                 "chunked prefill": "verifiers.max_num_batched_tokens",
                 "disaggregation": "verifiers.prefill", "drafters.max_num_seqs": "drafters.group"}  # fmt: skip
INSTEAD = {"drafters.depth = 0": "drafters.count = 0 drafts nothing"}  # of values that stand elsewhere
SHOWN = 3  # names in an error; a command lists all


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return the allowed names most like an unknown one, best first: "nearest: a, b, c"; all of a few in their order.

    - `name`: what a user typed; only its first 100 characters are compared, without case.
    """
    names = {known.lower(): known for known in allowed}
    if len(names) <= SHOWN:
        return f"allowed: {', '.join(names.values()) or 'none'}"
    meant = ENGINES_WORDS.get(name, "").rpartition(".")[2]
    alike = [meant] if meant in names else get_close_matches(name[:100].lower(), names, SHOWN, cutoff=0.0)
    return f"nearest: {', '.join(map(names.__getitem__, alike))}"
