//! Origin servers: stateless, many visible addresses, one listening socket; the object law answers.
