//! Services of ICAP: how they are, and what they did.

use super::{Admin, Reply};
use crate::icap::{ServerReport, Service};
use crate::record::IcapDid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All services.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IcapServices {
    /// In the order of the configuration.
    pub services: Vec<OfService>,
}

/// One service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfService {
    /// Its name.
    pub name: String,
    /// When it is asked: `reqmod`, `respmod-store` or `respmod-send`.
    pub stage: String,
    /// Where it stands in the configuration.
    pub place: String,
    /// The fate of messages that it could not be asked about: `deny` or `pass`.
    pub on_failure: String,
    /// Messages by result: `unchanged`, `changed`, `answered`, `failed`, `bypassed`.
    pub messages: BTreeMap<String, u64>,
    /// Microseconds that messages waited for it.
    pub wait_micros: u64,
    /// Its servers.
    pub servers: Vec<OfServer>,
}

/// One server of a service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfServer {
    /// Its URL.
    pub url: String,
    /// Connections that serve a message.
    pub busy: usize,
    /// Connections that do not.
    pub idle: usize,
    /// How many there may be.
    pub connections_max: usize,
    /// Messages that wait for a connection.
    pub waiting: usize,
    /// The tag of what it answers by.
    pub istag: Option<String>,
    /// Bytes of a body that it wishes to see first.
    pub preview: Option<u64>,
    /// Why it is not asked at the moment.
    pub trouble: Option<String>,
    /// Milliseconds until it is asked again.
    pub rests_millis: Option<u64>,
}

/// `GET /icap`.
pub(super) fn list(admin: &Admin) -> Reply {
    Reply::json(200, &IcapServices { services: all(admin).iter().map(|service| of_service(service)).collect() })
}

/// The services of the settings in force.
pub(super) fn all(admin: &Admin) -> Vec<Arc<Service>> {
    admin.common.live.value().icaps.iter().map(|icap| admin.common.icap.of(icap)).collect()
}

fn of_service(service: &Service) -> OfService {
    let icap = &service.settings;
    OfService {
        name: icap.name.clone(),
        stage: icap.stage.as_str().to_owned(),
        place: icap.place.to_string(),
        on_failure: icap.on_failure.as_str().to_owned(),
        messages: IcapDid::ALL.iter().map(|did| (did.as_str().to_owned(), service.counts.of(*did))).collect(),
        wait_micros: service.counts.micros(),
        servers: service.servers.iter().map(|server| of_server(server.report())).collect(),
    }
}

fn of_server(report: ServerReport) -> OfServer {
    let ServerReport { url, busy, idle, connections_max, waiting, istag, preview, rests } = report;
    let (trouble, rests) = rests.unzip();
    let rests_millis = rests.map(|rests| u64::try_from(rests.as_millis()).unwrap_or(u64::MAX));
    OfServer { url, busy, idle, connections_max, waiting, istag, preview, trouble, rests_millis }
}

/// Seconds that messages waited for a service.
pub(super) fn seconds(service: &Service) -> f64 {
    std::time::Duration::from_micros(service.counts.micros()).as_secs_f64()
}
