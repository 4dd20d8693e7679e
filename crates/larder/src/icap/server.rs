//! One server of a service: its answer to OPTIONS, and whether it is left alone for a while.

use super::connections::{ConnectionCounts, Connections};
use super::sending::{SendLimits, Sending};
use super::tags::{Tags, mark};
use super::talk::Talk;
use super::{Body, Trouble};
use crate::config::{Icap, IcapStage, OnNewTag};
use crate::upstream::Upstreams;
use larder_cache::cache::Cache;
use larder_wire::Fields;
use larder_wire::icap::{Capabilities, Reply, Service as Url, Vector, options};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// For how long an answer to OPTIONS holds that does not say so, or says more.
const OPTIONS_HOLD_MAX: Duration = Duration::from_secs(3600);

/// A server whose look failed is looked at again after so long. So often it is found out whether there are others now, too.
pub(super) const LOOK_AFTER_MAX: Duration = Duration::from_secs(10);

/// A server that failed is left alone for so long, and for twice as long each time it fails again.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);

/// One server of a service.
pub struct Server {
    settings: Arc<Icap>,
    url: Url,
    /// The tag of the store that its judgements have.
    mark: Box<str>,
    cache: Arc<Cache>,
    tags: Arc<Tags>,
    pub(super) connections: Arc<Connections>,
    state: Mutex<State>,
    /// Held while it is asked for its abilities.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    capabilities: Option<Arc<Capabilities>>,
    holds_until: Option<Instant>,
    rests_until: Option<Instant>,
    rest: Duration,
    trouble: Option<String>,
    /// A look at it was of no use, and waits until then.
    looks_from: Option<Instant>,
}

/// One server at this moment.
#[derive(Clone, Debug)]
pub struct ServerReport {
    /// Its URL.
    pub url: String,
    /// Connections that serve a question.
    pub busy: usize,
    /// Connections that do not.
    pub idle: usize,
    /// How many there may be.
    pub connections_max: usize,
    /// Messages that wait for a connection.
    pub waiting: usize,
    /// The tag of what it answers by.
    pub istag: Option<String>,
    /// The bytes of a body that it wishes to see first.
    pub preview: Option<u64>,
    /// Why it is left alone, and for how much longer.
    pub rests: Option<(String, Duration)>,
}

impl Server {
    pub(super) fn new(settings: &Arc<Icap>, url: &Url, (cache, tags): (&Arc<Cache>, &Arc<Tags>)) -> Server {
        Server {
            settings: Arc::clone(settings),
            url: url.clone(),
            mark: mark(&settings.name, url),
            cache: Arc::clone(cache),
            tags: Arc::clone(tags),
            connections: Arc::new(Connections::new(settings, url)),
            state: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn settings(&self) -> &Icap {
        &self.settings
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The tag of the store that its judgements have.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// How it is.
    pub fn report(&self) -> ServerReport {
        let ConnectionCounts { busy, idle, max, waiting } = self.connections.counts();
        let state = self.state.lock();
        let now = Instant::now();
        let rests = state.rests_until.map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero());
        ServerReport {
            url: self.url.to_string(),
            busy,
            idle,
            connections_max: max,
            waiting,
            istag: self.tags.known(&self.mark),
            preview: state.capabilities.as_ref().and_then(|capabilities| capabilities.preview),
            rests: rests.map(|left| (state.trouble.clone().unwrap_or_default(), left)),
        }
    }

    /// It gave a usable word.
    pub(super) fn works(&self) {
        let mut state = self.state.lock();
        (state.rests_until, state.rest, state.trouble) = (None, Duration::ZERO, None);
    }

    /// It is left alone for a while, twice as long as the last time.
    pub(super) fn fails(&self, trouble: &Trouble) {
        let mut state = self.state.lock();
        let now = Instant::now();
        // Of many messages that meet the same trouble, the first one counts.
        if state.rests_until.is_some_and(|until| until > now) {
            return;
        }
        state.rest = (state.rest * 2).clamp(REST_MIN, REST_MAX);
        state.rests_until = Some(now + state.rest);
        state.holds_until = None;
        self.connections.close_idle();
        let trouble = trouble.to_string();
        tracing::warn!("icap service {}: {trouble}; it is not asked for {:?}", self.connections.name(), state.rest);
        state.trouble = Some(trouble);
    }

    /// It is asked for its abilities again before the next message.
    pub(super) fn asks_anew(&self) {
        self.state.lock().holds_until = None;
    }

    /// Its abilities, which are asked for where they are not known or not any more.
    pub(super) async fn capabilities(
        self: &Arc<Server>,
        upstreams: &Upstreams,
        vector: Vector,
    ) -> Result<Arc<Capabilities>, Trouble> {
        let older = match self.known()? {
            (Some(capabilities), true) => return offered(capabilities, vector),
            (older, _) => older,
        };
        let asking = match &older {
            // Another message asks already, and this one goes by the older answer.
            Some(older) => match self.asking.try_lock() {
                Ok(asking) => asking,
                Err(_) => return offered(Arc::clone(older), vector),
            },
            None => self.asking.lock().await,
        };
        if let (Some(capabilities), true) = self.known()? {
            return offered(capabilities, vector);
        }
        let asked = self.ask_options(upstreams).await;
        drop(asking);
        match (asked, older) {
            // All its connections are in use: it works, and what it said holds a little longer.
            (Err(Trouble::Full | Trouble::NoConnection), Some(older)) => offered(older, vector),
            (Err(trouble @ (Trouble::Full | Trouble::NoConnection)), None) => Err(trouble),
            (asked, _) => {
                asked.and_then(|capabilities| offered(capabilities, vector)).inspect_err(|trouble| self.fails(trouble))
            }
        }
    }

    /// When it is to be asked for its abilities although no message needs them; `None`: at once.
    pub(super) fn look_due(&self) -> Option<Instant> {
        let state = self.state.lock();
        let moments = [state.holds_until, state.rests_until, state.looks_from];
        moments.into_iter().flatten().max()
    }

    /// Asks for its abilities, where no message does so. A server that can't be asked is left for messages to find.
    pub(super) async fn look(self: &Arc<Server>, upstreams: &Upstreams) {
        let Ok(_asking) = self.asking.try_lock() else { return };
        if !matches!(self.known(), Ok((_, false))) {
            return;
        }
        if let Err(trouble) = self.ask_options(upstreams).await {
            tracing::debug!("icap service {}: {trouble}", self.connections.name());
            self.state.lock().looks_from = Some(Instant::now() + LOOK_AFTER_MAX);
        }
    }

    /// The last answer about its abilities, and whether that holds still.
    fn known(&self) -> Result<(Option<Arc<Capabilities>>, bool), Trouble> {
        let state = self.state.lock();
        let now = Instant::now();
        if state.rests_until.is_some_and(|until| until > now) {
            return Err(Trouble::Resting);
        }
        Ok((state.capabilities.clone(), state.holds_until.is_some_and(|until| until > now)))
    }

    async fn ask_options(self: &Arc<Server>, upstreams: &Upstreams) -> Result<Arc<Capabilities>, Trouble> {
        let limits =
            SendLimits { preview: None, kept_bytes_max: 0, bytes_max: 0, silence_max: self.settings.silence_timeout };
        let mut is_fresh = false;
        let (talk, reply) = loop {
            let mut question = Vec::new();
            options(&mut question, &self.url, &Fields::new());
            let sending = Sending::begin(question, Body::none(), limits).await?;
            let mut talk =
                Talk::begin(self.connections.connect(upstreams, is_fresh).await?, sending, self.reply_limits());
            match talk.reply().await {
                Ok(reply) => break (talk, reply),
                Err(Trouble::Broken(_)) if talk.is_stale() && !is_fresh => is_fresh = true,
                Err(trouble) => return Err(trouble),
            }
        };
        if reply.status != 200 {
            return Err(Trouble::Status(reply.status));
        }
        if !reply.has_body {
            talk.end();
        }
        let capabilities = Arc::new(Capabilities::of(&reply));
        self.note_tag(&reply).await;
        let holds = capabilities.ttl.unwrap_or(OPTIONS_HOLD_MAX).min(OPTIONS_HOLD_MAX);
        {
            let mut state = self.state.lock();
            state.capabilities = Some(Arc::clone(&capabilities));
            state.holds_until = Some(Instant::now() + holds);
        }
        let welcome = capabilities.connections_max.and_then(|max| usize::try_from(max).ok()).unwrap_or(usize::MAX);
        self.connections.fit(self.settings.connections_max.min(welcome).max(1));
        Ok(capabilities)
    }

    /// Takes note of the tag under which it answers. Under a new one, what it judged before is not to be used any longer
    /// (section 4.7).
    pub(super) async fn note_tag(&self, reply: &Reply) {
        let Some(istag) = reply.fields.text("ISTag").map(|tag| tag.trim().trim_matches('"')) else { return };
        let purges = self.settings.stage == IcapStage::RespmodStore && self.settings.on_new_tag == OnNewTag::Purge;
        self.tags.note(&self.mark, istag, purges.then_some(&*self.cache)).await;
    }
}

fn offered(capabilities: Arc<Capabilities>, vector: Vector) -> Result<Arc<Capabilities>, Trouble> {
    match capabilities.serves(vector) {
        true => Ok(capabilities),
        false => Err(Trouble::NotOffered(vector)),
    }
}
