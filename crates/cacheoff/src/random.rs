//! Seeded streams of random numbers: one seed, a stream for each name.
