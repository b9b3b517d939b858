"""Imported in the process that the engine's nodes are forked from: what transformers does once, not in every node.

Its patterns for all kinds of checkpoints take a third of a second, as long as all the rest of a small node's life.
"""

import gc

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

get_checkpoint_conversion_mapping("llama")
gc.collect()
gc.freeze()  # nodes share what is frozen; collecting it would copy it
