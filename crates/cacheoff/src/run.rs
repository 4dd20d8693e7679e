//! A run: from a workload to a ledger.
