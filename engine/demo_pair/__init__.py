"""The demo pair: a small target and a smaller drafter that need no model hub; `tools/demo_pair/` trains them."""
