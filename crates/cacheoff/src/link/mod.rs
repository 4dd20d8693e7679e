//! Links in user space: delay, jitter, bandwidth, loss and a congestion window for each connection.
