//! How many connections there may be, who waits, and that nothing leaks when those who wait leave.

use super::play::*;
use crate::client::Client;
use crate::reach::Reach;
use crate::upstream::h1::Connection;
use crate::upstream::idle::ConnectionChoice;
use crate::upstream::wanted::Wanted;
use crate::upstream::{Origin, Settings, SettingsFault, UpstreamFault, UpstreamFaultKind, Upstreams};
use larder_rules::rule::Priority;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;

const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const SHORT: Duration = Duration::from_millis(300);

fn one_connection(settings: &mut Settings) {
    settings.connections_per_origin_max = 1;
}

#[tokio::test]
async fn a_released_connection_goes_to_those_who_wait_in_their_order() {
    let origin = at(answers(EMPTY).await);
    let upstreams = upstreams(one_connection);
    let mut first = lease(&upstreams, &origin).await.unwrap();
    ask(&mut first, GET).await.unwrap();
    let order = std::cell::RefCell::new(Vec::new());
    let turn = async |name: u8| {
        let mut connection = lease(&upstreams, &origin).await.unwrap();
        order.borrow_mut().push((name, connection.is_reused()));
        ask(&mut connection, GET).await.unwrap();
        connection.release();
    };
    let release = async {
        until(|| upstreams.stats().origins[0].waiting == 3).await;
        first.release();
    };
    patiently(async { tokio::join!(turn(1), turn(2), turn(3), release) }).await;
    assert_eq!(*order.borrow(), [(1, true), (2, true), (3, true)]);
    assert_eq!(upstreams.stats().total().opened, 1);
}

#[tokio::test]
async fn a_closed_connection_makes_room_for_a_new_one() {
    let origin = at(answers(EMPTY).await);
    let upstreams = upstreams(one_connection);
    let first = lease(&upstreams, &origin).await.unwrap();
    let waits = lease(&upstreams, &origin);
    let close = async {
        until(|| upstreams.stats().origins[0].waiting == 1).await;
        drop(first);
    };
    let (second, ()) = tokio::join!(waits, close);
    assert!(!second.unwrap().is_reused());
}

#[tokio::test]
async fn a_request_that_wants_a_new_connection_gets_one() {
    let origin = at(answers(EMPTY).await);
    let upstreams = upstreams(one_connection);
    exchange(&upstreams, &origin, GET).await.unwrap();
    let fresh = lease_new(&upstreams, &origin).await.unwrap();
    assert!(!fresh.is_reused());
    let stats = upstreams.stats();
    assert_eq!((stats.origins[0].open, stats.origins[0].idle), (1, 0), "the idle one made room");
    drop(fresh);

    let mut used = lease(&upstreams, &origin).await.unwrap();
    ask(&mut used, GET).await.unwrap();
    let release = async {
        until(|| upstreams.stats().origins[0].waiting == 1).await;
        used.release();
    };
    let (fresh, ()) = tokio::join!(lease_new(&upstreams, &origin), release);
    assert!(!fresh.unwrap().is_reused(), "one that waited does not take the used one");
}

#[tokio::test]
async fn the_queue_is_bounded_in_length_and_time() {
    let origin = at(answers(EMPTY).await);
    let upstreams = upstreams(|settings| {
        one_connection(settings);
        settings.waiting_max = 2;
        settings.connect_timeout = SHORT;
    });
    let held = lease(&upstreams, &origin).await.unwrap();
    let waits = || lease(&upstreams, &origin);
    let (a, b, c) = tokio::join!(waits(), waits(), waits());
    for (fault, words) in [(a, "in time"), (b, "in time"), (c, "too many others wait")] {
        let fault = fault.err().unwrap();
        assert_eq!((fault.kind.clone(), fault.status()), (UpstreamFaultKind::Busy, 503));
        assert!(fault.detail.contains(words), "{fault}");
    }
    assert_eq!(upstreams.stats().origins[0].waiting, 0);
    drop(held);
    assert_eq!(upstreams.stats().origins[0].open, 0);
}

#[tokio::test]
async fn those_who_leave_take_nothing_with_them() {
    let origin = at(answers(EMPTY).await);
    let url = url(&origin);
    let upstreams = upstreams(one_connection);
    for round in 0..20u32 {
        let mut held = lease(&upstreams, &origin).await.unwrap();
        ask(&mut held, GET).await.unwrap();
        {
            let mut leaves = Box::pin(connection(&upstreams, &url, ConnectionChoice::IdleAllowed));
            let mut stays = Box::pin(connection(&upstreams, &url, ConnectionChoice::IdleAllowed));
            assert!(timeout(Duration::ZERO, &mut leaves).await.is_err());
            assert!(timeout(Duration::ZERO, &mut stays).await.is_err());
            assert_eq!(upstreams.stats().origins[0].waiting, 2);
            // The first in the queue leaves before, or after, it is given the connection.
            if round % 2 == 0 {
                drop(leaves);
                held.release();
            } else {
                held.release();
                drop(leaves);
            }
            let mut given = patiently(stays).await.unwrap();
            ask(&mut given, GET).await.unwrap();
            given.release();
        }
        let stats = upstreams.stats();
        assert_eq!((stats.origins[0].open, stats.origins[0].waiting), (1, 0), "round {round}");
    }
}

#[tokio::test]
async fn a_failed_attempt_gives_its_place_back() {
    let address = refused_address();
    let upstreams = upstreams(one_connection);
    for _ in 0..3 {
        let fault = lease(&upstreams, &at(address)).await.err().unwrap();
        assert_eq!((fault.kind.clone(), fault.status()), (UpstreamFaultKind::Refused, 502));
    }
    let stats = upstreams.stats();
    assert_eq!((stats.origins[0].open, stats.origins[0].counts.failed), (0, 3));
}

/// Four requests at once leave four connections idle.
async fn leave_four(upstreams: &Upstreams, origin: &Origin) {
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut connection = lease(upstreams, origin).await.unwrap();
        ask(&mut connection, GET).await.unwrap();
        held.push(connection);
    }
    held.into_iter().for_each(|connection| connection.release());
}

fn idle_and_open(upstreams: &Upstreams, origin: &Origin) -> Option<(usize, usize)> {
    upstreams.stats().origins.iter().find(|of| of.origin == *origin).map(|of| (of.idle, of.open))
}

#[tokio::test]
async fn idle_connections_are_bounded_and_grow_old() {
    let [a, b] = [at(answers(EMPTY).await), at(answers(EMPTY).await)];
    let upstreams = upstreams(|settings| {
        settings.idle_max = 6;
        settings.keep_alive = Duration::from_secs(1);
    });
    leave_four(&upstreams, &a).await;
    leave_four(&upstreams, &b).await;
    let idle = |origin| idle_and_open(&upstreams, origin);
    assert_eq!((idle(&a), idle(&b)), (Some((2, 2)), Some((4, 4))), "the oldest of all made room");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    upstreams.sweep();
    assert_eq!((idle(&a), idle(&b)), (Some((0, 0)), Some((0, 0))));
}

/// Requests that are under way at once, more than connections are kept, need theirs again at once.
#[tokio::test]
async fn surplus_connections_stay_for_a_second() {
    let origin = at(answers(EMPTY).await);
    let upstreams = upstreams(|settings| settings.idle_per_origin_max = 2);
    let made = || upstreams.stats().origins[0].counts.opened;
    leave_four(&upstreams, &origin).await;
    leave_four(&upstreams, &origin).await;
    upstreams.sweep();
    assert_eq!((idle_and_open(&upstreams, &origin), made()), (Some((4, 4)), 4));
    tokio::time::sleep(Duration::from_millis(1100)).await;
    exchange(&upstreams, &origin, GET).await.unwrap();
    assert_eq!(idle_and_open(&upstreams, &origin), Some((2, 2)), "the others were used again too late");
    upstreams.sweep();
    assert_eq!((idle_and_open(&upstreams, &origin), made()), (Some((2, 2)), 4));
}

#[tokio::test]
async fn of_many_idle_connections_several_make_room_at_once() {
    let [a, b] = [at(answers(EMPTY).await), at(answers(EMPTY).await)];
    let upstreams = upstreams(|settings| {
        (settings.connections_per_origin_max, settings.idle_per_origin_max, settings.idle_max) = (200, 200, 128);
    });
    let mut held = Vec::new();
    for _ in 0..128 {
        let mut connection = lease(&upstreams, &a).await.unwrap();
        ask(&mut connection, GET).await.unwrap();
        held.push(connection);
    }
    held.into_iter().for_each(|connection| connection.release());
    let idle = |origin: &Origin| upstreams.stats().origins.iter().find(|of| of.origin == *origin).map(|of| of.idle);
    assert_eq!(idle(&a), Some(128));
    exchange(&upstreams, &b, GET).await.unwrap();
    assert_eq!((idle(&a), idle(&b)), (Some(126), Some(1)));
    exchange(&upstreams, &b, GET).await.unwrap();
    assert_eq!((idle(&a), idle(&b)), (Some(126), Some(1)), "there is room");
}

#[tokio::test]
async fn the_last_one_used_is_used_first() {
    let origin = at(origin(|mut peer| async move {
        let number = peer.number;
        while peer.request().await.is_some() {
            peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}")).await;
        }
    })
    .await);
    let upstreams = upstreams(|_| ());
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut connection = lease(&upstreams, &origin).await.unwrap();
        ask(&mut connection, GET).await.unwrap();
        assert_eq!(whole_body(&mut connection).await.unwrap().len(), 1);
        held.push(connection);
    }
    held.into_iter().for_each(|connection| connection.release());
    for _ in 0..3 {
        assert_eq!(exchange(&upstreams, &origin, GET).await.unwrap(), b"2");
    }
}

#[tokio::test]
async fn origins_that_are_not_used_are_forgotten_but_counted() {
    let upstreams = upstreams(|_| ());
    let port = refused_address().port();
    for number in 0..1100u32 {
        let host = format!("127.{}.{}.1", 1 + number / 250, number % 250);
        assert!(lease(&upstreams, &named(&host, port)).await.is_err());
    }
    let stats = upstreams.stats();
    assert_eq!((stats.origins.len(), stats.total().failed), (1024, 1100));
}

#[tokio::test]
async fn settings_that_permit_nothing_are_refused() {
    let mut settings = Settings::new(no_trust());
    settings.connections_per_origin_max = 0;
    assert_eq!(Upstreams::new(settings).err(), Some(SettingsFault::NoConnections));
}

/// An address where nobody listens.
fn refused_address() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A connection for a client at this address.
async fn lease_for(upstreams: &Upstreams, origin: &Origin, client: u8) -> Result<Connection, UpstreamFault> {
    lease_in_class(upstreams, origin, client, Priority::Normal).await
}

/// A connection for a request of this class.
async fn lease_in_class(
    upstreams: &Upstreams,
    origin: &Origin,
    client: u8,
    priority: Priority,
) -> Result<Connection, UpstreamFault> {
    let client = Some(Client::at([10, 0, 0, client].into()));
    let now = tokio::time::Instant::now();
    let url = url(origin);
    patiently(upstreams.connection(
        (&url, None),
        ConnectionChoice::IdleAllowed,
        Wanted { reach: &Reach::Configured, header: None },
        now,
        ((client, priority), &|_| {}),
    ))
    .await
}

/// Does all of this together.
async fn all(work: impl IntoIterator<Item = impl Future<Output = ()>>) {
    let mut left: Vec<_> = work.into_iter().map(Box::pin).collect();
    poll_fn(|cx| {
        left.retain_mut(|each| each.as_mut().poll(cx).is_pending());
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_has_its_share_leaves_the_rest_to_others() {
    let origin = at(answers(EMPTY).await);
    let upstreams = upstreams(|settings| {
        settings.connections_per_origin_max = 4;
        settings.waiting_max = 4;
        settings.client_share_percent = 50;
        settings.connect_timeout = SHORT;
    });
    let (first, _second) =
        (lease_for(&upstreams, &origin, 1).await.unwrap(), lease_for(&upstreams, &origin, 1).await.unwrap());
    // Two more wait though two connections are free, and the fifth is refused.
    let waits = || lease_for(&upstreams, &origin, 1);
    let (a, b, c) = tokio::join!(waits(), waits(), waits());
    for (fault, words) in [(a, "in time"), (b, "in time"), (c, "of this client")] {
        let fault = fault.err().unwrap();
        assert_eq!((fault.kind.clone(), fault.status()), (UpstreamFaultKind::ClientBusy, 503));
        assert!(fault.detail.contains(words), "{fault}");
    }
    // Another client is served at once meanwhile.
    let waits = lease_for(&upstreams, &origin, 1);
    let other = async {
        until(|| upstreams.stats().origins[0].waiting == 1).await;
        let other = lease_for(&upstreams, &origin, 2).await.unwrap();
        assert_eq!(upstreams.stats().origins[0].waiting, 1);
        drop(other);
        assert_eq!(upstreams.stats().origins[0].waiting, 1, "what others give back is not for one with its share");
        drop(first);
    };
    let (third, ()) = tokio::join!(waits, other);
    assert!(third.is_ok(), "its own that comes back is");
}

#[tokio::test]
async fn who_has_its_share_is_passed_over_in_the_queue() {
    let origin = at(answers(EMPTY).await);
    let upstreams = upstreams(|settings| {
        settings.connections_per_origin_max = 2;
        settings.client_share_percent = 50;
    });
    let greedy = lease_for(&upstreams, &origin, 1).await.unwrap();
    let mut other = lease_for(&upstreams, &origin, 2).await.unwrap();
    ask(&mut other, GET).await.unwrap();
    let order = std::cell::RefCell::new(Vec::new());
    let turn = async |client: u8| {
        let connection = lease_for(&upstreams, &origin, client).await.unwrap();
        order.borrow_mut().push(client);
        connection
    };
    let give_back = async {
        until(|| upstreams.stats().origins[0].waiting == 2).await;
        other.release();
        until(|| upstreams.stats().origins[0].waiting == 1).await;
        drop(greedy);
    };
    let (again, third, ()) = patiently(async { tokio::join!(turn(1), turn(3), give_back) }).await;
    assert_eq!(*order.borrow(), [3, 1]);
    drop((again, third));
    assert_eq!((upstreams.stats().origins[0].open, upstreams.stats().origins[0].waiting), (0, 0));
}

/// A hundred requests of one client stand in the queue, and those of three others: they are next, each in its turn.
#[tokio::test]
async fn a_client_with_many_requests_starves_no_other() {
    let origin = at(answers(EMPTY).await);
    let upstreams = upstreams(one_connection);
    let held = lease_for(&upstreams, &origin, 1).await.unwrap();
    let order = std::cell::RefCell::new(Vec::new());
    let turn = async |client: u8| {
        drop(lease_for(&upstreams, &origin, client).await.unwrap());
        order.borrow_mut().push(client);
    };
    let greedy = all((0..100).map(|_| turn(1)));
    let others = async {
        until(|| upstreams.stats().origins[0].waiting == 100).await;
        let give_back = async {
            until(|| upstreams.stats().origins[0].waiting == 103).await;
            drop(held);
        };
        tokio::join!(turn(2), turn(3), turn(4), give_back);
    };
    patiently(async { tokio::join!(greedy, others) }).await;
    assert_eq!(order.borrow()[..5], [1, 2, 3, 4, 1]);
    assert_eq!(order.borrow().len(), 103);
}

/// The queue is full of one client's requests: another's takes the place of the youngest of these.
#[tokio::test]
async fn a_full_queue_has_room_for_a_client_with_fewer() {
    let origin = at(answers(EMPTY).await);
    let upstreams = upstreams(|settings| {
        one_connection(settings);
        settings.waiting_max = 3;
    });
    let held = lease_for(&upstreams, &origin, 9).await.unwrap();
    let waits = async |client| lease_for(&upstreams, &origin, client).await.map(drop);
    let (a, b, c, other, ()) = patiently(async {
        tokio::join!(waits(1), waits(1), waits(1), waits(2), async {
            until(|| upstreams.stats().origins[0].waiting == 3).await;
            drop(held);
        })
    })
    .await;
    assert!(a.is_ok() && b.is_ok() && other.is_ok());
    let fault = c.err().unwrap();
    assert_eq!((fault.kind.clone(), fault.status()), (UpstreamFaultKind::ClientBusy, 503), "{fault}");
}

#[tokio::test]
async fn higher_classes_are_served_first_and_a_lower_one_makes_room() {
    let origin = at(answers(EMPTY).await);
    let upstreams = upstreams(|settings| {
        one_connection(settings);
        settings.waiting_max = 3;
    });
    let held = lease_for(&upstreams, &origin, 1).await.unwrap();
    let order = std::cell::RefCell::new(Vec::new());
    let turn = async |client: u8, priority| {
        let turn = lease_in_class(&upstreams, &origin, client, priority).await;
        order.borrow_mut().push((priority.as_str(), turn.as_ref().err().map(|fault| fault.as_str())));
    };
    patiently(async {
        tokio::join!(
            turn(1, Priority::Low),
            turn(2, Priority::Low),
            turn(3, Priority::Normal),
            turn(4, Priority::High),
            async {
                until(|| !order.borrow().is_empty()).await;
                drop(held);
            }
        )
    })
    .await;
    let expected = [("low", Some("client-busy")), ("high", None), ("normal", None), ("low", None)];
    assert_eq!(*order.borrow(), expected);
}

/// Requests have waited for longer than the target for some time: those of the lowest class are refused at once, others wait no longer than
/// that, and once they are through, all is as before.
#[tokio::test]
async fn an_origin_that_is_behind_is_not_waited_for_longer() {
    let origin = at(answers(EMPTY).await);
    let target = Duration::from_millis(50);
    let upstreams = upstreams(|settings| {
        one_connection(settings);
        settings.delay_target = target;
    });
    let is_behind = || upstreams.stats().origins[0].is_behind;
    let held = lease_for(&upstreams, &origin, 1).await.unwrap();
    let low = || lease_in_class(&upstreams, &origin, 3, Priority::Low);
    let watches = async {
        until(|| upstreams.stats().origins[0].waiting == 1).await;
        // The queue is looked at when a request comes or leaves, so one of these finds that the origin is behind. Those before it wait.
        loop {
            if let Ok(turn) = timeout(Duration::from_millis(5), low()).await {
                break turn.err().unwrap();
            }
        }
    };
    let (first, shed) = patiently(async { tokio::join!(lease_for(&upstreams, &origin, 1), watches) }).await;
    assert_eq!((shed.kind.clone(), shed.status()), (UpstreamFaultKind::Shed, 503), "{shed}");
    let overdue = first.err().unwrap();
    assert!(overdue.kind == UpstreamFaultKind::Busy && overdue.detail.contains("waited for 50 ms"), "{overdue}");
    assert!(timeout(Duration::from_millis(5), low()).await.is_err(), "nobody waits for too long, so it waits");
    drop(held);
    assert!(!is_behind() && low().await.is_ok());
}

#[tokio::test]
async fn fetches_that_nobody_reads_are_bounded_by_origin_and_together() {
    let upstreams = upstreams(|settings| (settings.unread_per_origin_max, settings.unread_max) = (2, 3));
    let [a, b] = [1, 2].map(|port| upstreams.asked(&url(&named("127.0.0.1", port))));
    let (first, second) = (a.unread(), a.unread());
    assert!(first.is_some() && second.is_some() && a.unread().is_none());
    let third = b.unread();
    assert!(third.is_some() && b.unread().is_none());
    drop(first);
    assert!(b.unread().is_some());
}
