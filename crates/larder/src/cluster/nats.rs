//! The conversations with NATS: connecting, looking at the stream, publishing purges and reading them.

use super::message::PurgeMessage;
use super::replica::{GATE_AFTER, Place, StreamFacts};
use crate::config::ClusterSettings;
use async_nats::jetstream::consumer::{DeliverPolicy, pull::OrderedConfig};
use async_nats::jetstream::context::{GetStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::stream::{
    ClusterInfo, Config as StreamConfig, DiscardPolicy, Info, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectOptions, Event, HeaderMap, ServerAddr};
use bytes::Bytes;
use futures_util::StreamExt;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// A look at the stream or an acknowledgement takes no longer; an election of JetStream's takes longer, and purges are queued then.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How long a connection to a server of NATS may take, its handshakes included.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// The longest rest between two tries to connect.
const REST_MAX: Duration = Duration::from_secs(1);

/// How often a connection is asked whether it lives: a server that hangs is left after twice as long.
const PING_EVERY: Duration = Duration::from_secs(1);

/// Messages of one subscription that wait to be read.
const MESSAGES_WAITING_MAX: usize = 4_096;

/// The space that one purge takes on average at most.
const PURGE_BYTES_MEAN_MAX: i64 = 512;

/// Copies of the stream where there are so many servers.
const REPLICAS: usize = 3;

/// News for the node.
pub enum News {
    /// A connection to NATS exists.
    Connected,
    /// None does.
    Disconnected,
    /// The server or the client says that something is wrong.
    Trouble(String),
}

/// Begins to connect, and goes on for as long as it takes. An error is one of the settings' files.
pub async fn connect(settings: &ClusterSettings, node: &str, news: Sender<News>) -> Result<Client, String> {
    let addresses = settings.nats.iter().map(|text| text.parse::<ServerAddr>());
    let addresses: Vec<ServerAddr> =
        addresses.collect::<Result<_, _>>().map_err(|error| format!("cluster.nats: {error}"))?;
    let mut options = ConnectOptions::new();
    if let Some(file) = &settings.credentials {
        let wrong = |error| format!("cluster.credentials: {}: {error}", file.display());
        options = ConnectOptions::with_credentials_file(file).await.map_err(wrong)?;
    }
    if let Some(file) = &settings.nkey {
        let seed = crate::lines::text_of(file, SEED_BYTES_MAX);
        let seed = seed.map_err(|error| format!("cluster.nkey: {}: {error}", file.display()))?;
        options = ConnectOptions::with_nkey(seed.trim().to_owned());
    }
    if let Some(file) = &settings.ca {
        options = options.add_root_certificates(file.clone());
    }
    if let (Some(certificate), Some(key)) = (&settings.certificate, &settings.key) {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    let tell = move |event| {
        let news = news.clone();
        async move {
            // Where the queue is full the node looks at the state of the connection by itself.
            let _ = news.try_send(news_of(&event));
        }
    };
    let rest = |tries: usize| REST_MAX.min(Duration::from_millis(50 << tries.min(6)));
    options
        .name(format!("larder {node}"))
        .require_tls(settings.nats.iter().all(|server| server.starts_with("tls://")))
        .retry_on_initial_connect()
        .max_reconnects(None)
        .reconnect_delay_callback(rest)
        .connection_timeout(CONNECT_WITHIN)
        .request_timeout(Some(ANSWER_WITHIN))
        .ping_interval(PING_EVERY)
        .subscription_capacity(MESSAGES_WAITING_MAX)
        .event_callback(tell)
        .connect(addresses)
        .await
        .map_err(|error| format!("NATS: {error}"))
}

/// A longer file holds no seed.
const SEED_BYTES_MAX: u64 = 4 << 10;

fn news_of(event: &Event) -> News {
    match event {
        Event::Connected => News::Connected,
        Event::Disconnected | Event::Closed => News::Disconnected,
        other => News::Trouble(other.to_string()),
    }
}

/// JetStream over a connection.
pub fn jetstream(client: &Client) -> Context {
    let mut context = jetstream::new(client.clone());
    context.set_timeout(ANSWER_WITHIN);
    context
}

/// The name of the stream.
pub fn stream_name(settings: &ClusterSettings) -> String {
    purges_of(&settings.subjects)
}

fn purges_of(subjects: &str) -> String {
    format!("{subjects}-purges")
}

/// Asks the stream about itself, and makes it where it is missing; gives for how long its answer holds no more, too: the stream's leader
/// answers by itself, and knows only up to when a majority of the copies followed it.
pub async fn look(context: Context, settings: ClusterSettings) -> Result<(StreamFacts, Duration), String> {
    let name = stream_name(&settings);
    let info = match context.get_stream(&name).await {
        Ok(stream) => Ok(stream.cached_info().clone()),
        Err(error) if is_missing(&error.kind()) => make(&context, &settings).await,
        Err(error) => Err(format!("JetStream: {error}")),
    };
    let info = info?;
    let age = info.cluster.as_ref().map_or(Ok(Duration::ZERO), majority_age)?;
    Ok((facts(&info, &settings)?, age))
}

/// How long ago the leader of a stream heard, together with itself, of a majority of the copies. A leader that is cut off from the others
/// answers for ten seconds more while another one takes purges.
fn majority_age(cluster: &ClusterInfo) -> Result<Duration, String> {
    let others = cluster.replicas.len();
    let needed = others.div_ceil(2);
    // A copy that was never heard of is said to be 0 ns old.
    let mut ages: Vec<Duration> =
        cluster.replicas.iter().map(|copy| copy.active).filter(|age| !age.is_zero()).collect();
    ages.sort_unstable();
    match needed.checked_sub(1).map(|last| ages.get(last)) {
        None => Ok(Duration::ZERO),
        Some(Some(age)) if *age < GATE_AFTER => Ok(*age),
        _ => Err(format!("JetStream: the leader of the stream does not hear a majority of its {} copies", others + 1)),
    }
}

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// With as many copies as there are servers for.
async fn make(context: &Context, settings: &ClusterSettings) -> Result<Info, String> {
    let mut last = String::new();
    for replicas in [REPLICAS, 1] {
        match context.create_stream(config(settings, replicas)).await {
            Ok(stream) => {
                tracing::info!("the stream {} was made, with {replicas} copies", stream_name(settings));
                return Ok(stream.cached_info().clone());
            }
            Err(error) => last = format!("the stream {} cannot be made: {error}", stream_name(settings)),
        }
    }
    Err(last)
}

/// The settings of the stream: the last purge of each subject, for good.
fn config(settings: &ClusterSettings, replicas: usize) -> StreamConfig {
    let messages = i64::try_from(settings.purges_max).unwrap_or(i64::MAX);
    StreamConfig {
        name: stream_name(settings),
        description: Some("purges of a Larder cluster".to_owned()),
        subjects: vec![format!("{}.purge.>", settings.subjects)],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        max_messages: messages,
        max_messages_per_subject: 1,
        max_bytes: messages.saturating_mul(PURGE_BYTES_MEAN_MAX),
        max_message_size: i32::try_from(super::message::PURGE_BYTES_MAX + HEADER_BYTES_MAX).unwrap_or(i32::MAX),
        deny_delete: true,
        allow_rollup: true,
        num_replicas: replicas,
        ..StreamConfig::default()
    }
}

/// The fields of a message beside its body.
const HEADER_BYTES_MAX: usize = 1 << 10;

/// The facts about a stream, unless it is one that can lose purges.
fn facts(info: &Info, settings: &ClusterSettings) -> Result<StreamFacts, String> {
    let config = &info.config;
    let wrong = match () {
        () if config.max_messages_per_subject != 1 => "max_msgs_per_subject is not 1",
        () if !config.max_age.is_zero() => "max_age is not 0, so that it forgets purges",
        () if config.discard != DiscardPolicy::New => "discard is not new, so that it forgets purges",
        () if config.retention != RetentionPolicy::Limits => "retention is not limits, so that it forgets purges",
        () if config.subjects != [format!("{}.purge.>", settings.subjects)] => "its subjects are others",
        () if !config.allow_rollup => "allow_rollup_hdrs is off",
        () if config.storage != StorageType::File => "storage is not file, so that it forgets purges",
        () if !config.deny_delete => "deny_delete is off, so that it forgets purges",
        () => "",
    };
    if !wrong.is_empty() {
        return Err(format!("the stream {} is not as Larder makes it: {wrong}", config.name));
    }
    Ok(StreamFacts {
        incarnation: info.created.unix_timestamp_nanos().to_string(),
        last: Place { applied: info.state.last_sequence, at: nanos(info.state.last_timestamp.unix_timestamp_nanos()) },
        messages: info.state.messages,
        messages_max: u64::try_from(config.max_messages).ok().filter(|max| *max > 0).unwrap_or(u64::MAX),
    })
}

/// A time of the stream; one before 1970 is none.
fn nanos(since_1970: i128) -> u64 {
    u64::try_from(since_1970).unwrap_or(0)
}

/// Why the stream did not take a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It answers nothing, or has no leader: the purge can be sent again later, and may have been taken.
    Away(String),
    /// It says no.
    Refused(String),
}

/// The numbers that the stream gave to some purges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The smallest one.
    pub first: u64,
    /// The largest one.
    pub last: u64,
}

/// Publishes purges; gives their numbers when the stream has all of them on disk. A stream that is full takes a purge of everything all
/// the same: it is emptied first, which other nodes take for a purge of everything, too.
pub async fn publish(context: &Context, subjects: &str, purges: &[PurgeMessage]) -> Result<Numbers, NotTaken> {
    match publish_all(context, subjects, purges).await {
        Err(NotTaken::Refused(why)) if purges.iter().any(PurgeMessage::is_everything) => {
            tracing::info!("the stream of purges is emptied: {why}");
            let stream = context.get_stream(purges_of(subjects)).await;
            let stream = stream.map_err(|error| NotTaken::Away(format!("JetStream: {error}")))?;
            // A purge that comes meanwhile stays.
            let end = stream.cached_info().state.last_sequence + 1;
            stream.purge().sequence(end).await.map_err(|error| NotTaken::Refused(format!("JetStream: {error}")))?;
            publish_all(context, subjects, purges).await
        }
        published => published,
    }
}

async fn publish_all(context: &Context, subjects: &str, purges: &[PurgeMessage]) -> Result<Numbers, NotTaken> {
    let mut acknowledgements = Vec::with_capacity(purges.len());
    for purge in purges {
        acknowledgements.push(begin_publish(context, subjects, purge).await?);
    }
    let mut numbers = Numbers { first: u64::MAX, last: 0 };
    for acknowledgement in acknowledgements {
        let number = acknowledgement.await.map_err(|error| not_taken(&error))?.sequence;
        numbers = Numbers { first: numbers.first.min(number), last: numbers.last.max(number) };
    }
    Ok(numbers)
}

/// The field of a message that takes the place of all before it.
const ROLLUP: &str = "Nats-Rollup";

/// Without the field by which the stream drops a message that it has already: somebody else could have sent its name first, and a purge
/// that comes twice does no harm.
async fn begin_publish(
    context: &Context,
    subjects: &str,
    purge: &PurgeMessage,
) -> Result<jetstream::context::PublishAckFuture, NotTaken> {
    let too_long =
        || NotTaken::Refused(format!("a URL or prefix longer than {} bytes", super::message::SCOPE_BYTES_MAX));
    let body = purge.to_bytes().ok_or_else(too_long)?;
    let mut headers = HeaderMap::new();
    if purge.is_everything() {
        // All purges before it are contained in it.
        headers.insert(ROLLUP, "all");
    }
    let sent = context.publish_with_headers(purge.subject(subjects), headers, Bytes::from(body)).await;
    sent.map_err(|error| not_taken(&error))
}

fn not_taken(error: &async_nats::error::Error<PublishErrorKind>) -> NotTaken {
    let says_no = match error.kind() {
        PublishErrorKind::Other => {
            let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
            std::iter::from_fn(|| {
                let here = cause?;
                cause = here.source();
                Some(here)
            })
            .any(|cause| cause.downcast_ref::<jetstream::Error>().is_some_and(is_refusal))
        }
        _ => false,
    };
    let text = format!("JetStream: {error}");
    if says_no { NotTaken::Refused(text) } else { NotTaken::Away(text) }
}

/// Whether the stream is there and says no: to this message, or since it is full. A missing leader is an error of another kind.
fn is_refusal(error: &jetstream::Error) -> bool {
    let is_full = error.error_code() == ErrorCode::STREAM_STORE_FAILED && error.to_string().contains("maximum");
    error.code() == 400 || is_full
}

/// A message of the stream.
pub struct Arrived {
    /// Its subject.
    pub subject: String,
    /// Its place in the stream.
    pub place: Place,
    /// Whether the stream took out all that was before it.
    pub rolls_up: bool,
    /// Its body.
    pub body: Bytes,
}

/// Reads the stream from this number on, until something is wrong with that: the reader is begun anew then. Purges are asked for some at
/// a time: where the server sends them by itself, it sends more than a node with a slow disk can keep.
pub async fn read(context: Context, stream: String, from: u64, to: Sender<Arrived>) -> String {
    let config = OrderedConfig {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from.max(1) },
        ..OrderedConfig::default()
    };
    let consumer = match context.create_consumer_on_stream(config, stream).await {
        Ok(consumer) => consumer,
        Err(error) => return format!("JetStream: {error}"),
    };
    let mut messages = match consumer.messages().await {
        Ok(messages) => messages,
        Err(error) => return format!("JetStream: {error}"),
    };
    while let Some(message) = messages.next().await {
        let arrived = match message {
            Ok(message) => {
                let Ok(info) = message.info() else { return "JetStream: a message without a number".to_owned() };
                let place = Place { applied: info.stream_sequence, at: nanos(info.published.unix_timestamp_nanos()) };
                let rolls_up = message.headers.as_ref().and_then(|fields| fields.get(ROLLUP));
                let rolls_up = rolls_up.is_some_and(|value| value.as_str().eq_ignore_ascii_case("all"));
                Arrived { subject: message.subject.to_string(), place, rolls_up, body: message.payload.clone() }
            }
            Err(error) => return format!("JetStream: {error}"),
        };
        if to.send(arrived).await.is_err() {
            break;
        }
    }
    "JetStream: the reader ended".to_owned()
}
