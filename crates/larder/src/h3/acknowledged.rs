//! Bytes that clients have acknowledged. QUIC tells nobody how far it is but its congestion control, so the count is taken there.

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, Cubic, CubicConfig};
use quinn_proto::RttEstimator;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counts the bytes of the packets of one connection that its client has acknowledged, whatever way they took to it.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged(Arc<AtomicU64>);

impl Acknowledged {
    /// The bytes so far, with the heads of their packets, and without those of packets that hold nothing but acknowledgements.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The congestion control of the connection: that of `quinn` by default (RFC 9438), which counts here.
    pub fn counter(&self) -> Arc<dyn ControllerFactory + Send + Sync> {
        Arc::new(CountingFactory(self.clone()))
    }
}

struct CountingFactory(Acknowledged);

impl ControllerFactory for CountingFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let cubic = Cubic::new(Arc::new(CubicConfig::default()), now, current_mtu);
        Box::new(Counting { cubic, acknowledged: self.0.clone() })
    }
}

#[derive(Clone)]
struct Counting {
    cubic: Cubic,
    acknowledged: Acknowledged,
}

impl Controller for Counting {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.cubic.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.acknowledged.0.fetch_add(bytes, Ordering::Relaxed);
        self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.cubic.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.cubic.on_congestion_event(now, sent, is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.cubic.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.cubic.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
