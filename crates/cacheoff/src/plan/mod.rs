//! What an ideal cache would score on a workload, and what the run will need: computed before the first request.
