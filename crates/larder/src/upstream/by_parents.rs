//! Connections through parents, with their permits, and the origin itself behind them.

use super::call::{Call, CallEvent};
use super::connect;
use super::fault::{UpstreamFault, UpstreamFaultKind};
use super::h1::{self, Connection};
use super::idle::ConnectionChoice;
use super::parents::{self, FarEnd, NoParent, Parents};
use super::permits::{Grant, Permit};
use super::wanted::Wanted;
use super::{Shared, Upstreams};
use crate::client::Client;
use crate::reach::Reach;
use crate::record::{ParentOrder, TakenWay, WayNote};
use crate::wire::Wire;
use larder_rules::rule::Priority;
use larder_wire::{Host, ResponseHead, Url};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

impl Upstreams {
    /// A connection to the origin of a URL through one of these parents, as [`Upstreams::connection`] gives one to the origin itself.
    pub(super) async fn connection_by_parents(
        &self,
        (url, tls_name): (&Url, Option<&Host>),
        choice: ConnectionChoice,
        (reach, through): (&Reach, &Parents),
        now: Instant,
        (asked_by, on): ((Option<Client>, Priority), &dyn Fn(CallEvent)),
    ) -> Result<Connection, UpstreamFault> {
        if through.is_offline {
            return Err(UpstreamFault::out_of_reach());
        }
        let memory = &self.shared.settings.memory;
        let origin = self.shared.pool.origin_by_parents((url, tls_name), now);
        let (permit, handed_on, now) = match Permit::try_take(&origin, asked_by.0) {
            Some(permit) => (permit, None, now),
            None => {
                let Grant { permit, connection } = Permit::wait(&origin, asked_by).await?;
                (permit, connection, Instant::now())
            }
        };
        let over = Reach::Through(through.over_idle(&memory.parents, now));
        if let Some(idle) = origin.idle_for(choice, Wanted { reach: &over, header: None }, handed_on, now) {
            origin.count(|counts| counts.reused += 1);
            if let Some(idle) = &idle.parent {
                let taken = TakenWay::Parent(Arc::clone(&idle.parent), ParentOrder::By(through.order));
                on(CallEvent::WayTaken(Box::new(WayNote { taken: Some(taken), ..WayNote::default() })));
            }
            return Ok(Connection::again(idle, permit, Rc::clone(&self.shared), now));
        }
        origin.make_room();
        on(CallEvent::Connecting);
        memory.outages.tries(origin.origin(), now);
        let mut note = Box::<WayNote>::default();
        let accepted = || on(CallEvent::Accepted);
        let opened = parents::open(&self.shared, FarEnd::Origin(origin.origin(), &accepted), through, &mut note).await;
        match opened {
            Ok(opened) => {
                origin.count(|counts| counts.opened += 1);
                on(CallEvent::WayTaken(note));
                Ok(Connection::through(opened, permit, Rc::clone(&self.shared)))
            }
            Err(NoParent { fault, direct_within: None }) => {
                origin.count(|counts| counts.failed += 1);
                on(CallEvent::WayTaken(note));
                Err(fault)
            }
            Err(NoParent { direct_within: Some(left), .. }) => {
                origin.count(|counts| counts.failed += u64::from(!note.failed.is_empty()));
                drop(permit);
                note.taken = Some(TakenWay::Direct);
                on(CallEvent::WayTaken(note));
                let reach = reach.clone().directly();
                let now = Instant::now();
                let wanted = Wanted { reach: &reach, header: None };
                let direct = Box::pin(self.connection((url, tls_name), choice, wanted, now, (asked_by, on)));
                timeout(left, direct).await.unwrap_or_else(|_| Err(direct_too_slow(&url.host)))
            }
        }
    }

    /// Sends a request to a parent that reads it, and waits for the final head. The origin may take its time; where the parent itself hangs,
    /// a request that may be repeated is given up and goes another way.
    pub(super) async fn ask_parent(
        &self,
        connection: Connection,
        call: &mut Call<'_>,
    ) -> Result<(ResponseHead, Connection), UpstreamFault> {
        let (Some(parent), Reach::Asked { own, .. }) = (connection.parent().map(Arc::clone), call.reach) else {
            return h1::ask(connection, call).await;
        };
        let (own, healths) = (Rc::clone(own), &self.shared.settings.memory.parents);
        let is_repeatable = call.method.is_idempotent() && call.body.is_none();
        let began = Instant::now();
        let mut patience = self.shared.settings.connect_timeout;
        let mut asked = pin!(h1::ask(connection, call));
        let answered = loop {
            match timeout(patience, &mut asked).await {
                Ok(answered) => break answered,
                Err(_) if is_repeatable && healths.has_hung_since(&parent, began) => {
                    return Err(parents::hung(&parent));
                }
                Err(_) => parents::suspect(&self.shared, &parent, &own),
            }
            patience = LOOK_EVERY;
        };
        // A refusal is an answer too.
        if !answered.as_ref().is_err_and(|fault| fault.kind != UpstreamFaultKind::Parent) {
            healths.answered(&parent);
        }
        answered
    }

    /// A tunnel to a host through one of these parents, as [`Upstreams::tunnel`] gives one directly.
    pub(super) async fn tunnel_by_parents(
        &self,
        (host, port): (&Host, u16),
        (reach, through): (&Reach, &Parents),
        on: &dyn Fn(Box<WayNote>),
    ) -> Result<Wire, UpstreamFault> {
        if through.is_offline {
            return Err(UpstreamFault::out_of_reach());
        }
        let mut note = Box::<WayNote>::default();
        match parents::open(&self.shared, FarEnd::Tunnel(host, port), through, &mut note).await {
            Ok(opened) => {
                on(note);
                Ok(opened.wire)
            }
            Err(NoParent { fault, direct_within: None }) => {
                on(note);
                Err(fault)
            }
            Err(NoParent { direct_within: Some(left), .. }) => {
                note.taken = Some(TakenWay::Direct);
                on(note);
                let Shared { dns, settings, .. } = &*self.shared;
                connect::open_plain(dns, settings, (host, port), reach, left).await
            }
        }
    }
}

/// How often a request that waits for a parent looks whether that one hangs.
const LOOK_EVERY: Duration = Duration::from_millis(500);

fn direct_too_slow(host: &Host) -> UpstreamFault {
    let detail = format!("no parent led to {host}, and no connection to it came about in the time that was left");
    UpstreamFault::new(UpstreamFaultKind::ConnectTimeout, detail)
}
