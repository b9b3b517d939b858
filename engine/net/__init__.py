"""The network of a node: both ends of its connections, wire formats, access and limits. Without torch."""
