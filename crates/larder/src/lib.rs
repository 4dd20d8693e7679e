//! Larder.
