"""Imported in the process that the engine's nodes are forked from, so that transformers initialises once.

Its patterns for all kinds of checkpoints take a third of a second, as long as the rest of a small node's life.
"""

import gc

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

get_checkpoint_conversion_mapping("llama")
gc.collect()
gc.freeze()  # nodes share frozen objects; a collection would copy them
