//! Regular expressions of a list, as one machine.

use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::{self, NFA};
use regex_automata::util::syntax;

/// Memory of the machine that all expressions of a list become.
pub const EXPRESSION_MACHINE_BYTES_MAX: usize = 32 << 20;

/// The machine that matches URLs against all of these; letters match in both cases.
pub fn machine(expressions: &[impl AsRef<str>]) -> Result<Regex, Box<regex_automata::meta::BuildError>> {
    let config = Regex::config().nfa_size_limit(Some(EXPRESSION_MACHINE_BYTES_MAX)).utf8_empty(false);
    Regex::builder().configure(config).syntax(spelling()).build_many(expressions).map_err(Box::new)
}

/// About as many bytes as one expression takes of the machine of all.
pub fn machine_bytes(expression: &str) -> Result<usize, Box<thompson::BuildError>> {
    let config = NFA::config().nfa_size_limit(Some(EXPRESSION_MACHINE_BYTES_MAX)).utf8(false);
    let nfa = NFA::compiler().configure(config).syntax(spelling()).build(expression).map_err(Box::new)?;
    Ok(nfa.memory_usage())
}

fn spelling() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false).case_insensitive(true)
}
