//! Phases at run time: which one it is, and what its factors are now.
