//! Decisions in sentences.

use super::decision::{Decision, Numbers, OfAsked, OfTry, OfVariant, OriginKind, ParallelRanges, Settled};
use super::{Explanation, Tense};
use crate::hook::place_words;
use crate::record::Cause;
use larder_wire::date::{Stamp, format_date};
use std::fmt::{self, Write};

/// The sentence of a decision.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Listener { address, place } => write!(f, "{address} ({place})"),
            Decision::Rule { place, text, .. } if place.is_empty() => f.write_str(text),
            Decision::Rule { place, text, .. } => write!(f, "{text} ({place})"),
            Decision::Certificate { text } | Decision::Country { text } | Decision::User { text } => f.write_str(text),
            Decision::Compression { coding } => write!(f, "coded as {coding} by Larder"),
            Decision::Key { key, made } => write!(f, "{key} (made of {})", made.join(", ")),
            Decision::StoreRule { text } => f.write_str(text),
            Decision::Hook { .. } => hook(self, f),
            Decision::Helper { .. } => helper(self, f),
            Decision::Icap { .. } => icap(self, f),
            Decision::Directives { asked } => f.write_str(&directives(asked)),
            Decision::Variants { variants, more, taken_up } => stored(variants, *more, *taken_up, f),
            Decision::Freshness { numbers, usable } => freshness(numbers, usable, f),
            Decision::Absent { fate, since, not_stored_before } => {
                absent(fate.as_deref(), *since, not_stored_before.as_deref(), f)
            }
            Decision::Followed { looks } => {
                write!(f, "waited for what another request had asked the origin for (looked {looks} times)")
            }
            Decision::Upstream { .. } => upstream(self, f),
            Decision::Way { .. } => way(self, f),
            Decision::OriginGroup { group, tries, refused } => origin_group(group, tries, refused.as_deref(), f),
            Decision::Stored { stored, why, numbers, on_disk, disk_is_behind, vary } => {
                kept(*stored, why.as_deref(), numbers.as_ref(), (*on_disk, *disk_is_behind), f)?;
                if vary.is_empty() { Ok(()) } else { write!(f, "; a variant by {}", vary.join(", ")) }
            }
            Decision::Answer(settled) => answer(settled, f),
        }
    }
}

fn hook(decision: &Decision, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Decision::Hook { stage, hook, hook_script, hook_line, hook_micros, hook_remembered, did, asks_for } = decision
    else {
        return Ok(());
    };
    write!(f, "{}, {stage}: ", place_words(hook, hook_script, *hook_line))?;
    let Some(did) = did else {
        return f.write_str(match hook.as_str() {
            "" => "its filters are not known, for no process has loaded it here; all that is said here leaves its work out",
            _ => "would be asked; all that is said here leaves its work out",
        });
    };
    f.write_str(if did.is_empty() { "changes nothing" } else { did })?;
    if let Some(target) = asks_for {
        write!(f, ", asks for {target}")?;
    }
    match (hook_remembered, hook_micros) {
        (true, _) => f.write_str(" (remembered)"),
        (false, Some(micros)) => write!(f, " ({micros} \u{b5}s)"),
        (false, None) => Ok(()),
    }
}

fn helper(decision: &Decision, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Decision::Helper { helper, helper_kind, helper_did, helper_micros, helper_remembered, helper_text } = decision
    else {
        return Ok(());
    };
    write!(f, "{helper} ({helper_kind}): ")?;
    match helper_did.as_deref() {
        None => f.write_str("would be asked, and its answer is not known here"),
        Some(did @ ("ok" | "err" | "bh" | "tt")) => write!(f, "answered {}", did.to_ascii_uppercase()),
        Some("passed-over") => f.write_str("passed over"),
        Some(other) => f.write_str(other),
    }?;
    match (helper_remembered, helper_micros) {
        (true, _) => f.write_str(" (remembered)")?,
        (false, Some(micros)) => write!(f, " after {}", took(*micros))?,
        (false, None) => {}
    }
    if helper_text.is_empty() { Ok(()) } else { write!(f, ": {helper_text}") }
}

fn icap(decision: &Decision, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Decision::Icap { icap, icap_method, icap_did, icap_micros, icap_trouble } = decision else { return Ok(()) };
    write!(f, "{icap}, {icap_method}: ")?;
    f.write_str(if icap_did.is_empty() { "would be asked" } else { icap_did })?;
    if let Some(trouble) = icap_trouble {
        write!(f, ", {trouble}")?;
    }
    icap_micros.map_or(Ok(()), |micros| write!(f, " ({micros} \u{b5}s)"))
}

/// A moment as people read it.
fn date(seconds: u64) -> String {
    String::from_utf8_lossy(&format_date(Stamp(seconds))).into_owned()
}

fn directives(asked: &OfAsked) -> String {
    let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name}={value}"));
    let flag = |name: &str, set: bool| set.then(|| name.to_owned());
    let max_stale = asked.max_stale.map(|most| match most {
        0.. => format!("max-stale={most}"),
        _ => "max-stale".to_owned(),
    });
    let all = [
        flag("no-cache", asked.no_cache),
        flag("no-store", asked.no_store),
        flag("only-if-cached", asked.only_if_cached),
        flag("offline", asked.offline),
        number("max-age", asked.max_age),
        number("min-fresh", asked.min_fresh),
        max_stale,
        number("stale-if-error", asked.stale_if_error),
    ];
    let parts: Vec<String> = all.into_iter().flatten().collect();
    if parts.is_empty() { "nothing special".to_owned() } else { parts.join(", ") }
}

fn stored(variants: &[OfVariant], more: usize, taken_up: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match variants.len() + more {
        0 => f.write_str("nothing under this key"),
        1 => f.write_str("1 response"),
        many => write!(f, "{many} variants"),
    }?;
    if taken_up && !variants.is_empty() {
        f.write_str(" taken up from disk")?;
    }
    for variant in variants {
        let mark = match (variant.chosen, variant.matches) {
            (true, _) => "this one",
            (_, true) => "would do too",
            _ => "for others",
        };
        let by = if variant.by.is_empty() { String::new() } else { format!(" [{}]", variant.by.join("; ")) };
        let length = variant.length.map_or(String::new(), |length| format!(", {length} bytes"));
        write!(f, "; {mark}{by}: in {}{length}", variant.lies)?;
    }
    if more > 0 {
        write!(f, "; and {more} more")?;
    }
    Ok(())
}

fn freshness(numbers: &Numbers, usable: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Numbers { now, received, initial_age, age, lifetime, source, remaining, .. } = numbers;
    let since = now.saturating_sub(*received);
    let older = if *initial_age > 0 { format!("{initial_age} s old on arrival + ") } else { String::new() };
    write!(f, "age {age} s ({older}{since} s since {}) of {lifetime} s {}: ", date(*received), given_by(source))?;
    match usable {
        "fresh" => write!(f, "fresh, {remaining} s left until {}", date(now.saturating_add_signed(*remaining))),
        word if *remaining > 0 => write!(f, "fresh for {remaining} s more, but {}", because(word)),
        word => write!(f, "stale since {} ({} s ago): {}", date(until(numbers)), -remaining, because(word)),
    }?;
    for (name, set) in [("must-revalidate", numbers.must_revalidate), ("no-cache", numbers.no_cache)] {
        if set {
            write!(f, "; the answer says {name}")?;
        }
    }
    Ok(())
}

/// The source of a lifetime, in words.
fn given_by(source: &str) -> String {
    if source == "none" { "(the answer gives no lifetime)".to_owned() } else { format!("by {source}") }
}

fn until(numbers: &Numbers) -> u64 {
    numbers.now.saturating_add_signed(numbers.remaining)
}

/// The reason for a judgement of freshness, in words.
fn because(usable: &str) -> &str {
    match usable {
        "max-stale" => "the client takes it so (max-stale)",
        "offline" => "the run does not use the network (--offline)",
        "stale-while-revalidate" => "it is served and validated behind the answer (stale-while-revalidate)",
        "stale" => "it must be validated first",
        "no-cache" => "the answer asks to be validated each time (no-cache)",
        "must-revalidate" => "it must be validated first, whatever the client takes (must-revalidate)",
        "request-no-cache" => "the client asks for a validation (no-cache)",
        "request-max-age" => "the client takes nothing that old (max-age)",
        "clock" => "it arrived later than now by this clock, so its age is unknown: it must be validated first",
        "apart" => "purges of other machines may not be known here: it must be validated first",
        "request-min-fresh" => "the client wants more freshness than is left (min-fresh)",
        other => other,
    }
}

fn absent(fate: Option<&str>, since: Option<u64>, before: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(why) = before {
        return write!(f, "the last answer could not be stored: {}", not_stored(why));
    }
    let at = since.map_or(String::new(), |since| format!(" on {}", date(since)));
    match fate {
        None => f.write_str("nothing is remembered of this key"),
        Some("evicted") => write!(f, "it was stored, and made room for others{at}"),
        Some("to-disk") => write!(f, "it left memory for the disk{at}, and made room there since"),
        Some("not-admitted") => write!(f, "it left memory{at}, and the disk had not admitted it"),
        Some("purged") => write!(f, "it was stored, and was purged{at}"),
        Some("expired-by-purge") => write!(f, "a soft purge made it stale{at}"),
        Some("invalidated") => write!(f, "it was stored, and a request that changes things made it void{at}"),
        Some("changed") => write!(f, "it was stored, and the origin had something else{at}"),
        Some("corrupt") => write!(f, "its bytes were not those that its digest names{at}"),
        Some("too-long") => write!(f, "it grew too long to be kept{at}"),
        Some(other) => write!(f, "{other}{at}"),
    }
}

fn upstream(decision: &Decision, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Decision::Upstream { cause, about, kind, attempts, conditional, trouble, digest, parallel, .. } = decision
    else {
        return Ok(());
    };
    write!(f, "asked because {cause}: {about}")?;
    if *conditional {
        f.write_str(" A stored answer was named, to be validated.")?;
    }
    match kind.as_str() {
        "part" => f.write_str(" Only the part was asked for.")?,
        "hole" => f.write_str(" Only what is missing was asked for.")?,
        _ => {}
    }
    asked(decision, f)?;
    if *attempts > 1 {
        write!(f, " Tried {attempts} times.")?;
    }
    if let Some(named_by) = digest {
        write!(f, " The body has the digest that {named_by} names.")?;
    }
    if let Some(parallel) = parallel {
        parallel_ranges(parallel, f)?;
    }
    trouble.as_ref().map_or(Ok(()), |trouble| write!(f, " Trouble: {trouble}."))
}

/// Those through whom the origin is asked.
fn way(decision: &Decision, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Decision::Way { taken, hops, asked, by, failed, left_out } = decision else { return Ok(()) };
    if !asked.is_empty() {
        write!(f, "{} would be asked first whether the response is there; if not, ", asked.join(", "))?;
    }
    match (taken, hops.as_slice()) {
        (Some(taken), _) => f.write_str(taken)?,
        (None, [first, others @ ..]) => {
            write!(f, "{first} would be tried")?;
            others.iter().try_for_each(|other| write!(f, ", then {other}"))?;
        }
        (None, []) if failed.is_empty() => f.write_str("nobody may be asked: rules leave no parent")?,
        (None, []) => f.write_str("no parent led to the origin")?,
    }
    if let Some(by) = by {
        write!(f, ", because {by}")?;
    }
    failed.iter().try_for_each(|each| write!(f, "; tried in vain: {each}"))?;
    if !left_out.is_empty() {
        write!(f, "; left out, because they had failed of late: {}", left_out.join(", "))?;
    }
    Ok(())
}

/// The members of a group that were asked.
fn origin_group(group: &str, tries: &[OfTry], refused: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(group)?;
    for (at, each) in tries.iter().enumerate() {
        f.write_str(if at == 0 { ": " } else { "; then " })?;
        write!(f, "{}, {}", each.member, because_of(&each.why))?;
        if each.hedge {
            f.write_str(" and beside the one before, which was late")?;
        }
        match (each.status, each.trouble.as_deref()) {
            (Some(status), _) => write!(f, ": {status}")?,
            (None, Some("outrun")) => f.write_str(": another member answered first")?,
            (None, Some("given-up")) => f.write_str(": given up")?,
            (None, Some(trouble)) => write!(f, ": {trouble}")?,
            (None, None) => {}
        }
        if let Some(micros) = each.micros {
            write!(f, " after {}", took(micros))?;
        }
        if !each.passed_over.is_empty() {
            write!(f, " (passed over: {})", each.passed_over.join(", "))?;
        }
    }
    refused.map_or(Ok(()), |why| write!(f, "; no further member: {why}"))
}

/// Why a member was chosen, in words.
fn because_of(why: &str) -> &str {
    match why {
        "balance" => "by its balance",
        "cookie" => "because the client's cookie names it",
        "trial" => "to find out whether it works again",
        "backup" => "because no other than a backup may be asked",
        "least-bad" => "because none may be asked and it is the least bad",
        other => other,
    }
}

/// Which origin was asked or would be, and how long that took.
fn asked(decision: &Decision, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Decision::Upstream {
        origin: Some(origin),
        origin_kind,
        asks,
        reused,
        by_http2,
        proxy_header,
        status,
        connected_micros,
        answered_micros,
        ..
    } = decision
    else {
        return Ok(());
    };
    let connection = match (reused, by_http2) {
        (Some(true), false) => "a connection that was open",
        (Some(false), false) => "a new connection",
        (Some(true), true) => "a stream of HTTP/2 on a connection that was open",
        (Some(false), true) => "a stream of HTTP/2 on a new connection",
        (None, _) => "",
    };
    let by = |before: &str| if connection.is_empty() { String::new() } else { format!("{before}{connection}") };
    let after = connected_micros.map_or(String::new(), |micros| format!(" after {}", took(micros)));
    match (origin_kind, asks) {
        (OriginKind::Network, Some(asks)) => write!(f, " At {origin}{}, for {asks}{after}", by(", ")),
        (OriginKind::Network, None) => write!(f, " At {origin}{}{after}", by(", ")),
        (OriginKind::Group, Some(asks)) => write!(f, " A member of {origin} would be asked for {asks}"),
        (OriginKind::Group, None) => write!(f, " A member of {origin} was asked{after}{}", by(", over ")),
        (OriginKind::Socket, Some(asks)) => write!(f, " The server behind {origin} would be asked for {asks}"),
        (OriginKind::Application, Some(asks)) => write!(f, " The application {origin} would be asked for {asks}"),
        (OriginKind::Socket, None) => write!(f, " The server behind {origin} was asked{after}{}", by(", over ")),
        // The time is that until a process had room.
        (OriginKind::Application, None) => {
            write!(f, " The application was asked{after}, in {origin}{}", by(" over "))
        }
    }?;
    if let Some(header) = proxy_header {
        write!(f, ", with {header}")?;
    }
    if let (Some(status), Some(micros)) = (status, answered_micros) {
        write!(f, "; it said {status} after {}", took(*micros))?;
    }
    f.write_char('.')
}

fn parallel_ranges(parallel: &ParallelRanges, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let ParallelRanges { most, requests, limit } = parallel;
    match (requests, most) {
        (0, _) => f.write_str(" One request alone brought it")?,
        (1, 0 | 1) => f.write_str(" One range request ahead of it was tried")?,
        (_, 0 | 1) => write!(f, " {requests} range requests ahead of it were tried")?,
        _ => write!(f, " Up to {most} requests at once brought it ({requests} ranges ahead of the first)")?,
    }
    f.write_str(match limit.as_str() {
        "setting" => ", as many as `upstream.parallel_ranges` permits.",
        "no-gain" => ": one more brought no more bytes a second.",
        "short" => ": it was about to end.",
        "forbidden" => ": the origin takes no ranges.",
        "left-alone" => ": an earlier download found that this origin is to be left alone for a while.",
        "slow" => ": a request brought nothing for seconds.",
        "busy" => ": the origin said 429 or 503.",
        "trouble" => ": a request failed.",
        "changed" => ": the object had changed, or its parts are not for all.",
        "permits" => ": the client or the origin had as many requests under way as it may have.",
        "not-wanted" => ": the store had no room ahead of it, or nobody wanted the rest.",
        _ => ".",
    })
}

fn kept(
    stored: bool,
    why: Option<&str>,
    numbers: Option<&Numbers>,
    (on_disk, disk_is_behind): (Option<bool>, bool),
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    if !stored {
        return write!(f, "no: {}", why.map_or("it was for this request alone", not_stored));
    }
    f.write_str("yes")?;
    if let Some(numbers) = numbers {
        let old = if numbers.age > 0 { format!(", {} s of them gone on arrival", numbers.age) } else { String::new() };
        let by = given_by(&numbers.source);
        write!(f, ", fresh for {} s {by}{old}, until {}", numbers.lifetime, date(until(numbers)))?;
    }
    match on_disk {
        Some(false) if disk_is_behind => f.write_str("; in memory only, the disk is behind with its writes"),
        Some(true) => f.write_str("; in memory, and admitted to disk"),
        Some(false) => f.write_str("; in memory only, the disk admits what is asked for twice"),
        None => Ok(()),
    }
}

/// Why an answer is not stored, in a sentence.
pub(super) fn not_stored(why: &str) -> &str {
    match why {
        "method" => "only answers to GET are (method)",
        "request-body" => "the request had a body (request-body)",
        "request-no-store" => "the request said no-store (request-no-store)",
        "status" => "answers of this status are not (status)",
        "must-understand" => "it said must-understand, and its status is unknown (must-understand)",
        "no-store" => "it said no-store (no-store)",
        "disk-behind" => "the disk was behind with its writes, and memory had no room for it (disk-behind)",
        "private" => "it said private: it is for one user (private)",
        "authorization" => {
            "the request had Authorization, and the answer does not say that others may have it (authorization)"
        }
        "vary-any" => "it said Vary: * (vary-any)",
        "partial" => "its bytes cannot be put together with others: no strong validator (partial)",
        "not-explicit" => "the status is not stored unless the origin says so (not-explicit)",
        "set-cookie" => "it sets a cookie, and does not say that others may have the rest of it (set-cookie)",
        "no-freshness" => "it has neither a lifetime nor a validator: it could never be used (no-freshness)",
        "too-long" => "it is longer than the store takes (too-long)",
        "address" => {
            "the name led to an address that is closed to clients elsewhere, who would find the answer by that name (address)"
        }
        "other-variant" => "it is a part, and would take the place of a response for other requests (other-variant)",
        "coded" => "it is stored coded, and its origin no longer permits that (coded)",
        "portal" => "it is a page in the place of a file, as a network sends it that wants a login first (portal)",
        "icap" => "a service of ICAP was not asked, or made an answer of it that may not be for all (icap)",
        other => other,
    }
}

fn answer(settled: &Settled, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(&settled.outcome)?;
    if let Some(cause) = &settled.cause {
        write!(f, " ({cause})")?;
    }
    if let Some(status) = settled.status.filter(|&status| status > 0) {
        write!(f, ", status {status}")?;
    }
    if let Some(bytes) = settled.bytes {
        write!(f, ", {bytes} bytes")?;
    }
    if let Some(micros) = settled.micros {
        write!(f, " in {}", took(micros))?;
    }
    if settled.complete == Some(false) {
        f.write_str(", cut short")?;
    }
    Ok(())
}

/// Microseconds as people read them.
fn took(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        10_000..10_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// The outcome in a sentence, for people who read no further.
pub(super) fn verdict(outcome: &str, cause: Option<Cause>, tense: Tense) -> String {
    let about = cause.map(Cause::about).unwrap_or_default();
    let (is, asked) = match tense {
        Tense::Past => ("was", "The origin was asked"),
        Tense::Ahead => ("would be", "The origin would be asked"),
    };
    match outcome {
        "hit" => format!("It {is} answered from the store, fresh."),
        "hit-stale" => format!("It {is} answered from the store, stale as the client takes it."),
        "hit-revalidating" => {
            format!("It {is} answered from the store, a little stale, and validated behind the answer.")
        }
        "hit-error" => format!("It {is} answered from the store, stale, because the origin is in trouble."),
        "validated" => format!("It {is} answered from the store, after the origin said that it still holds. {about}"),
        "collapsed" => format!("It {is} answered by a fetch that another request began."),
        "miss" => format!("{asked}. {about}"),
        "tunnel" => format!("It {is} tunnelled; nobody looks inside."),
        "opened" => "The tunnel was opened: the requests inside have records of their own.".to_owned(),
        "failed" => format!("{asked}, in vain. {about}"),
        "validate" => format!("The origin would be asked whether what is stored still holds. {about}"),
        _ => format!("Larder {} by itself.", if tense == Tense::Past { "answered" } else { "would answer" }),
    }
}

/// Text for a terminal: control characters (C0, C1, marks of direction) are escaped, because the fields of requests
/// that it shows may come from anybody.
pub(crate) struct Harmless<'a>(pub &'a str);

impl fmt::Display for Harmless<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                write!(f, "{}", letter.escape_unicode())
            }
            letter if letter.is_control() => write!(f, "{}", letter.escape_unicode()),
            letter => f.write_char(letter),
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = &self.request;
        writeln!(f, "{} {}", Harmless(&request.method), Harmless(&request.url))?;
        writeln!(f, "{}\n", self.says)?;
        if self.tense == Tense::Past {
            writeln!(f, "{:10} {}", "request", request.id)?;
            writeln!(f, "{:10} {}", "at", date(request.at_millis / 1_000))?;
            writeln!(f, "{:10} {}", "client", request.client)?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{:10} {}", step.step, Harmless(&step.says)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ProxyHeaderNote;
    use larder_wire::proxy_protocol::ProxyVersion;

    /// An origin that was asked, or would be.
    fn upstream(kind: OriginKind, origin: &str, asks: Option<&str>) -> String {
        upstream_by(kind, origin, asks, false)
    }

    fn upstream_by(kind: OriginKind, origin: &str, asks: Option<&str>, by_http2: bool) -> String {
        let decision = asked_at(kind, origin, asks, by_http2);
        decision.to_string().replace("asked because uri-miss: Nothing was stored. ", "")
    }

    fn asked_at(kind: OriginKind, origin: &str, asks: Option<&str>, by_http2: bool) -> Decision {
        let is_past = asks.is_none();
        Decision::Upstream {
            cause: "uri-miss".to_owned(),
            about: "Nothing was stored.".to_owned(),
            kind: "whole".to_owned(),
            origin: Some(origin.to_owned()),
            origin_kind: kind,
            asks: asks.map(str::to_owned),
            reused: is_past.then_some(kind != OriginKind::Socket),
            by_http2,
            proxy_header: None,
            attempts: u8::from(is_past),
            conditional: false,
            status: is_past.then_some(200),
            connected_micros: is_past.then_some(35),
            answered_micros: is_past.then_some(1_254),
            trouble: None,
            digest: None,
            parallel: None,
        }
    }

    #[test]
    fn origins_of_all_kinds() {
        let ahead = Some("/a of b.example");
        for (kind, origin, asks, expected) in [
            (
                OriginKind::Network,
                "10.0.0.5:9000",
                None,
                "At 10.0.0.5:9000, a connection that was open after 35 µs; it said 200 after 1.3 ms.",
            ),
            (OriginKind::Network, "http://10.0.0.5:9000", ahead, "At http://10.0.0.5:9000, for /a of b.example."),
            (
                OriginKind::Application,
                "process 4711",
                None,
                "The application was asked after 35 µs, in process 4711 over a connection that was open; it said 200 after 1.3 ms.",
            ),
            (
                OriginKind::Application,
                "wsgi:app:application",
                ahead,
                "The application wsgi:app:application would be asked for /a of b.example.",
            ),
            (
                OriginKind::Socket,
                "its socket",
                None,
                "The server behind its socket was asked after 35 µs, over a new connection; it said 200 after 1.3 ms.",
            ),
            (
                OriginKind::Socket,
                "http+unix:/run/app.sock",
                ahead,
                "The server behind http+unix:/run/app.sock would be asked for /a of b.example.",
            ),
        ] {
            assert_eq!(upstream(kind, origin, asks), expected);
        }
    }

    #[test]
    fn the_protocol_to_the_origin_is_said_where_it_is_http2() {
        let expected =
            "At 10.0.0.5:9000, a stream of HTTP/2 on a connection that was open after 35 µs; it said 200 after 1.3 ms.";
        assert_eq!(upstream_by(OriginKind::Network, "10.0.0.5:9000", None, true), expected);
    }

    #[test]
    fn a_header_of_the_proxy_protocol_is_said() {
        let mut decision = asked_at(OriginKind::Network, "10.0.0.5:9000", None, false);
        let Decision::Upstream { proxy_header, .. } = &mut decision else { unreachable!("it is one") };
        let note = ProxyHeaderNote { version: ProxyVersion::Two, names_client: true };
        *proxy_header = Some(note.to_string());
        let expected = "a connection that was open after 35 µs, with a header of the PROXY protocol (v2) that names the client; it said 200";
        assert!(decision.to_string().contains(expected), "{decision}");
    }

    #[test]
    fn nothing_steers_a_terminal() {
        let text = Harmless("a\u{1b}[31m\u{9b}31m\r\n\u{202e}é…").to_string();
        assert_eq!(text, "a\\u{1b}[31m\\u{9b}31m\\u{d}\\u{a}\\u{202e}é…");
    }
}
