"""Train the demo pair of `engine/demo_pair/`, and measure it with a loop of its own."""
