//! Metrics of the certificates that listeners show, and of orders for those of sites.

use super::{Family, counter, gauge};
use std::sync::atomic::Ordering;

pub(super) const ENDS: Family = gauge(
    "larder_certificate_end_seconds",
    "When a certificate ends, in seconds since 1970: of a listener by its address and the first name, of sites by `acme` and the first name.",
    |admin, samples| {
        for open in admin.listeners.lock().iter() {
            for served in &open.listener.served {
                let certificate = format!("{} {}", open.configured, served.name);
                samples.labelled("certificate", &certificate, served.not_after.0);
            }
        }
        for served in admin.acme.states().iter().filter_map(|state| state.served.as_ref()) {
            samples.labelled("certificate", &format!("acme {}", served.name), served.not_after.0);
        }
    },
);

pub(super) const MISSING: Family = gauge(
    "larder_acme_certificates_missing",
    "Certificates that sites want by ACME and that were not issued yet: TLS is refused for their names.",
    |admin, samples| samples.one(admin.acme.states().iter().filter(|state| state.served.is_none()).count()),
);

pub(super) const ORDERS: Family = counter(
    "larder_acme_orders_total",
    "Orders for certificates of sites, by result; `limited` are those that the authority refused because it had too many.",
    |admin, samples| {
        let counts = admin.acme.counts();
        for (result, count) in [("issued", &counts.issued), ("failed", &counts.failed), ("limited", &counts.limited)] {
            samples.labelled("result", result, count.load(Ordering::Relaxed));
        }
    },
);
