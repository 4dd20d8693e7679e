//! The object law: a URL decides server, type, size, cachability, life cycle, validators and every byte of the
//! body. Robots and origins share it and nothing else.
