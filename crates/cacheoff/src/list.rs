//! What workloads there are.
