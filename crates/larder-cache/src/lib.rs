//! All that a cache knows, and nothing of the network.
