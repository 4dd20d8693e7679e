//! Counters and records of one worker's requests, and the sums over all workers.

use crate::log::Lines;
use crate::record::{Count, Measures, Outcome, Record, Ring};
use crate::trace::Spans;
use larder_wire::date::Stamp;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The table of counters below is their documentation too.
macro_rules! counters {
    ($($name:ident: $doc:literal,)*) => {
        /// Counts of one worker since they were last added to the sums.
        #[derive(Debug, Default)]
        pub struct Tally {
            $(#[doc = $doc] pub $name: Count,)*
            /// Requests by outcome.
            pub measures: Measures<Count>,
            /// Log lines that wait to be written.
            pub lines: Lines,
            /// Spans that wait to be sent.
            pub spans: Spans,
            /// The last requests.
            pub ring: Ring,
            /// Requests that were refused, by the rule.
            pub refused: RefCell<RefusedByRule>,
        }

        /// Counts of all workers since the start.
        #[derive(Debug, Default)]
        pub struct Counters {
            $(#[doc = $doc] pub $name: AtomicU64,)*
            /// Requests by outcome.
            pub measures: Measures<AtomicU64>,
            /// Requests that were refused, by the rule.
            pub refused: Mutex<RefusedByRule>,
        }

        impl Counters {
            /// Adds the counts of a worker.
            pub fn add(&self, tally: &Tally) {
                $(match tally.$name.take() {
                    0 => {}
                    some => { self.$name.fetch_add(some, Ordering::Relaxed); }
                })*
                self.measures.add(&tally.measures);
                let mut refused = tally.refused.borrow_mut();
                if !refused.0.is_empty() {
                    self.refused.lock().take(&mut refused);
                }
            }

            /// Each counter by name, with its documentation.
            pub fn each(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $doc, self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    connections: "Client connections accepted.",
    connections_refused: "Client connections refused because there were too many.",
    handshakes_failed: "TLS handshakes with clients that failed.",
    proxy_headers_refused: "Connections of balancers that were closed for want of a proper header of the PROXY protocol.",
    transparent_refused: "Connections to a transparent listener that were closed: without another destination, or with no request and no ClientHello.",
    pass_through_refused: "Connections by TLS to a listener with `pass_through` that were closed: they named no site, and the listener has no certificate.",
    socks_refused: "Connections to a listener of SOCKS that were closed because they broke its protocol, or wanted more of it than is offered.",
    http2_connections: "Client connections that spoke HTTP/2.",
    http2_streams_refused: "Requests of HTTP/2 refused because their connection had too many streams.",
    http2_rapid_resets: "Connections of HTTP/2 ended because the client reset too many streams.",
    http2_made_resets: "Connections of HTTP/2 ended because the client made Larder reset too many streams.",
    http2_control_floods: "Connections of HTTP/2 ended because of too many PING, SETTINGS, PRIORITY, unknown or empty frames.",
    http2_small_data_floods: "Connections of HTTP/2 ended because of too many small DATA frames.",
    http2_window_floods: "Connections of HTTP/2 ended because of too many WINDOW_UPDATE frames.",
    http2_block_floods: "Connections of HTTP/2 ended because of a field block in too many frames or bytes.",
    http3_connections: "Client connections that spoke HTTP/3.",
    http3_moves: "Connections of HTTP/3 ended because a request came from another address than the handshake.",
    http3_retries: "Clients of HTTP/3 that had to prove their address first, because many handshakes were under way.",
    http3_handshakes_ignored: "First packets of clients of HTTP/3 that were ignored because too many handshakes were under way.",
    http3_rapid_resets: "Connections of HTTP/3 ended because the client gave up too many streams.",
    http3_made_resets: "Connections of HTTP/3 ended because the client made Larder reset too many streams.",
    http3_control_floods: "Connections of HTTP/3 ended because of too many frames and streams without a meaning.",
    http3_small_data_floods: "Connections of HTTP/3 ended because of too many small DATA frames.",
    requests: "Requests answered.",
    hits: "Requests answered from the store, after a validation or from another request's fetch too.",
    misses: "Requests for which an origin was asked.",
    failures: "Requests whose origin could not be had.",
    refusals: "Requests answered by Larder itself.",
    tunnels: "CONNECTs and upgrades whose bytes were passed on, and CONNECTs that were opened.",
    bytes_from_store: "Body bytes sent that came from the store.",
    bytes_fetched: "Body bytes sent that came from an origin for this request.",
    rule_denials: "Requests that a rule refused.",
    bandwidth_waits: "Pieces of answers and tunnels that waited under a limit of bandwidth.",
    faults: "Requests refused because their bytes were no proper HTTP.",
    digests_matched: "Bodies from origins that had the digest that was named for them.",
    digests_wrong: "Bodies from origins that had another digest than was named: not stored, and not sent to their end where nobody else had begun to read them.",
    indexes_read: "Indexes of packages that were read for the digests that they name.",
    indexes_unread: "Indexes of packages that could not be read, so that files were not held against the digests that they name.",
    gzip_bodies: "Bodies that were coded as gzip on their way into the store.",
    gzip_bytes_read: "Bytes of these bodies before.",
    gzip_bytes_written: "Bytes of these bodies afterwards.",
    gzip_micros: "Microseconds that their coders worked.",
    br_bodies: "Bodies that were coded as br on their way into the store.",
    br_bytes_read: "Bytes of these bodies before.",
    br_bytes_written: "Bytes of these bodies afterwards.",
    br_micros: "Microseconds that their coders worked.",
    zstd_bodies: "Bodies that were coded as zstd on their way into the store.",
    zstd_bytes_read: "Bytes of these bodies before.",
    zstd_bytes_written: "Bytes of these bodies afterwards.",
    zstd_micros: "Microseconds that their coders worked.",
    codings_refused: "Bodies that were stored as they came because `limits.codings_max` were being coded.",
    parallel_requests: "Range requests that were sent ahead of a running download.",
    parallel_bytes: "Body bytes that such requests brought.",
    parallel_stops: "Downloads whose further range requests were ended by an error, a refusal or a changed object.",
    refused_busy: "Requests answered 503 because too many wait for their origin, or for too long.",
    refused_client_busy: "Requests answered 503 because their client has its share of their origin, or others have less.",
    refused_shed: "Requests of low priority answered 503 because others wait for too long.",
    panics: "Requests that met a broken invariant and were answered 500.",
}

/// Refused requests, by the name and place of the rule.
#[derive(Debug, Default)]
pub struct RefusedByRule(BTreeMap<Box<str>, Refusals>);

/// The requests that a rule refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// How many.
    pub count: u64,
    /// When the last one came.
    pub last: Stamp,
}

/// Rules that are counted each for itself; those of further ones are counted together.
const RULES_COUNTED_MAX: usize = 256;
/// The name under which these are counted.
const FURTHER_RULES: &str = "further rules";

impl RefusedByRule {
    /// Counts requests of one rule.
    pub fn add(&mut self, rule: &str, more: Refusals) {
        let is_counted_alone = self.0.contains_key(rule) || self.0.len() < RULES_COUNTED_MAX;
        let rule = if is_counted_alone { rule } else { FURTHER_RULES };
        match self.0.get_mut(rule) {
            Some(known) => *known = Refusals { count: known.count + more.count, last: known.last.max(more.last) },
            None => _ = self.0.insert(rule.into(), more),
        }
    }

    /// Forgets the rules for which this does not hold: those of a configuration that is no more, whose places others want.
    pub fn keep(&mut self, is_in_force: impl Fn(&str) -> bool) {
        self.0.retain(|rule, _| &**rule == FURTHER_RULES || is_in_force(rule));
    }

    fn take(&mut self, others: &mut RefusedByRule) {
        std::mem::take(&mut others.0).into_iter().for_each(|(rule, more)| self.add(&rule, more));
    }

    /// Each rule with its requests.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Refusals)> {
        self.0.iter().map(|(rule, refusals)| (&**rule, *refusals))
    }
}

impl Tally {
    /// Counts one request.
    pub fn count(&self, record: &Record) {
        self.requests.add(1);
        self.measures.count(record);
        match record.outcome {
            outcome if outcome.is_from_store() => {
                self.hits.add(1);
                self.bytes_from_store.add(record.bytes);
            }
            Outcome::Miss(_) => {
                self.misses.add(1);
                self.bytes_fetched.add(record.bytes);
            }
            Outcome::Failed(word) => {
                self.failures.add(1);
                match word {
                    "busy" => self.refused_busy.add(1),
                    "client-busy" => self.refused_client_busy.add(1),
                    "shed" => self.refused_shed.add(1),
                    _ => {}
                }
            }
            Outcome::Tunnel | Outcome::Opened => self.tunnels.add(1),
            _ => self.refusals.add(1),
        }
    }
}
