//! Active checks: each member of a group that has checks is asked for a page now and then, by one worker for all.

use super::call::Call;
use super::group::GroupState;
use super::{UpstreamFault, UpstreamFaultKind, Upstreams};
use crate::config::OriginMember;
use crate::config::origin::{MemberHost, OriginCheck};
use crate::reach::Reach;
use larder_rules::rule::Priority;
use larder_wire::{Fields, Method};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::{Instant, sleep_until, timeout};

/// The most of a body that is read so that the connection can serve again.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Checks members for as long as the worker lives.
pub async fn check_members(upstreams: Upstreams) {
    // When a group is checked next, by its name.
    let mut due: HashMap<String, Instant> = HashMap::new();
    loop {
        let groups: Vec<Arc<GroupState>> = upstreams.groups().all();
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        let mut still: HashMap<String, Instant> = HashMap::new();
        for group in groups {
            let config = group.config();
            let Some(check) = config.check.clone() else { continue };
            let mut at = due.get(&config.name).copied().unwrap_or(now).min(now + check.every);
            if at <= now {
                at = now + check.every;
                for member in &config.members {
                    let (upstreams, group) = (upstreams.clone(), Arc::clone(&group));
                    let (member, check) = (Arc::clone(member), check.clone());
                    tokio::task::spawn_local(async move { check_one(&upstreams, &group, &member, &check).await });
                }
            }
            next = Some(next.map_or(at, |next| next.min(at)));
            still.insert(config.name.clone(), at);
        }
        due = still;
        let changed = upstreams.groups().changed.notified();
        match next {
            Some(next) => tokio::select! {
                () = sleep_until(next) => {}
                () = changed => {}
            },
            None => changed.await,
        }
    }
}

async fn check_one(upstreams: &Upstreams, group: &GroupState, member: &OriginMember, check: &OriginCheck) {
    if !upstreams.has_room(&member.url, member.sni.as_ref()) {
        // The requests that fill the member show what it is worth; one more would wait for them in a queue of this worker.
        return;
    }
    let answered = timeout(check.timeout, ask(upstreams, member, check)).await;
    let trouble = match answered {
        Ok(Err(fault)) if fault.kind == UpstreamFaultKind::Busy => return,
        Ok(Ok(status)) if check.statuses.contains(&status) => None,
        Ok(Ok(status)) => Some(format!("{} answered {status}", check.path)),
        Ok(Err(fault)) => Some(fault.to_string()),
        Err(_) => Some(format!("{} had no answer within {} s", check.path, check.timeout.as_secs_f64())),
    };
    group.checked(&member.name, trouble.as_deref());
}

async fn ask(upstreams: &Upstreams, member: &OriginMember, check: &OriginCheck) -> Result<u16, UpstreamFault> {
    let host = match (&check.host, &member.host) {
        (Some(host), _) | (None, MemberHost::Named(host)) => host.clone(),
        (None, MemberHost::Client | MemberHost::Own) if member.url.host.is_local() => "localhost".to_owned(),
        (None, MemberHost::Client | MemberHost::Own) => member.url.authority(),
    };
    let mut fields = Fields::new();
    fields.push("Host", host);
    fields.push("User-Agent", concat!("larder/", env!("CARGO_PKG_VERSION"), " (check)"));
    let mut call = Call {
        to: &member.url,
        tls_name: member.sni.as_ref(),
        method: &Method::Get,
        target: &check.path,
        fields: &fields,
        body: None,
        reach: &Reach::Configured,
        client: None,
        priority: Priority::default(),
        begins: Instant::now(),
        silent_for: None,
        http2: member.http2.unwrap_or_default(),
        proxy_protocol: member.proxy_protocol,
        proxied: None,
        on: &|_| {},
    };
    let mut response = upstreams.call_one(&mut call).await?;
    let mut left = BODY_BYTES_MAX;
    while let Some(piece) = response.body.next().await? {
        match left.checked_sub(piece.len()) {
            Some(rest) => left = rest,
            None => break,
        }
    }
    Ok(response.head.status)
}
