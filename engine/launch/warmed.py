"""Imported in the process that nodes are forked from, so that transformers prepares to read checkpoints once.

Its patterns for all kinds of checkpoints take a third of a second a node.
"""

import gc

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

get_checkpoint_conversion_mapping("llama")
gc.collect()
gc.freeze()  # nodes share frozen objects; a collection would copy them
