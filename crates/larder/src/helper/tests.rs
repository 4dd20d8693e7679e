//! Helpers of the tests' own making, which hang, die, flood and answer what nobody asked; and those of Squid's package, unmodified.

use super::*;
use crate::config::Loaded;
use larder_people::answer::{AnswerFault, Outcome};
use larder_people::line;
use std::path::Path;
use std::sync::atomic::Ordering;

/// A helper that is a script for `sh`, with these settings.
fn helper(kind: &str, script: &str, settings: &str) -> (Helpers, Arc<Pool>) {
    helpers_of(kind, &format!("[\"sh\", \"-c\", {script:?}]"), settings)
}

fn helpers_of(kind: &str, command: &str, settings: &str) -> (Helpers, Arc<Pool>) {
    let format = if kind == "external_acl" && !settings.contains("format") { "format = \"%SRC\"\n" } else { "" };
    let text = format!("[[helper]]\nname = \"h\"\nkind = \"{kind}\"\ncommand = {command}\n{format}{settings}\n");
    let loaded = Loaded::parse("test", &text, &[]).unwrap_or_else(|report| panic!("{text}{report}"));
    let helpers = Helpers::default();
    helpers.have(&loaded.config.helpers).unwrap();
    let pool = helpers.find("h").unwrap();
    (helpers, pool)
}

/// `Outcome`, and the pairs behind it.
fn said(reply: Result<Arc<larder_people::answer::Answer>, HelperTrouble>) -> String {
    match reply {
        Ok(answer) => {
            let pairs = answer.pairs.iter().map(|(key, value)| format!(" {key}={value}")).collect::<String>();
            format!("{:?}{pairs}", answer.result)
        }
        Err(trouble) => trouble.as_str().to_owned(),
    }
}

async fn ask(pool: &Pool, line: &str) -> String {
    said(pool.ask(line.into()).await)
}

#[tokio::test]
async fn one_line_after_the_other() {
    let script = "while read -r line; do echo \"OK user=$line\"; done";
    let (_helpers, pool) = helper("external_acl", script, "children = 1\nttl = \"0s\"");
    let all = ["a", "b", "c"].map(|name| ask(&pool, name));
    let [a, b, c] = all;
    assert_eq!(tokio::join!(a, b, c), ("Ok user=a".into(), "Ok user=b".into(), "Ok user=c".into()));
    assert_eq!(pool.counts.started.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn answers_are_remembered_for_their_time() {
    let script = "n=0; while read -r line; do n=$((n+1)); [ \"$line\" = no ] && echo \"ERR message=$n\" || echo \"OK tag=$n\"; done";
    let (_helpers, pool) = helper("external_acl", script, "children = 1\nnegative_ttl = \"0s\"");
    assert_eq!((ask(&pool, "yes").await, ask(&pool, "no").await), ("Ok tag=1".into(), "Err message=2".into()));
    assert!(pool.remembered(b"yes").is_some_and(|answer| answer.get("tag") == Some("1")));
    assert!(pool.remembered(b"no").is_none() && pool.remembered(b"other").is_none());
}

#[tokio::test]
async fn channels_may_overtake_each_other() {
    // Answers two lines in the order opposite to theirs.
    let script = "while read -r i x && read -r j y; do echo \"$j OK user=$y\"; echo \"$i OK user=$x\"; done";
    let (_helpers, pool) = helper("external_acl", script, "children = 1\nconcurrency = 4");
    let (a, b) = tokio::join!(ask(&pool, "a"), ask(&pool, "b"));
    assert_eq!((a.as_str(), b.as_str()), ("Ok user=a", "Ok user=b"));
}

/// squidGuard answers `ERR`, which means that the URL stays as it is, without the number of the channel: with it taken for an answer, a
/// bad URL would pass.
#[tokio::test]
async fn an_answer_without_its_channel_is_none() {
    let (_helpers, pool) = helper("url_rewrite", "while read -r line; do echo ERR; done", "concurrency = 4");
    let reply = pool.ask(b"http://bad.test/".to_vec()).await;
    assert_eq!(reply, Err(HelperTrouble::Answer(AnswerFault::NoChannel)));
    let (_helpers, pool) = helper("url_rewrite", "while read -r line; do echo '77 OK'; done", "concurrency = 4");
    assert_eq!(ask(&pool, "http://bad.test/").await, "helper-answer");
}

#[tokio::test]
async fn a_helper_that_hangs_is_replaced() {
    let script = "while read -r line; do [ \"$line\" = hang ] && sleep 60; echo OK; done";
    let (_helpers, pool) = helper("external_acl", script, "children = 1\ntimeout = \"300ms\"");
    assert_eq!(ask(&pool, "hang").await, "helper-late");
    let (_helpers, after) = helper("external_acl", script, "children = 1");
    assert_eq!(ask(&after, "fine").await, "Ok");
    // The next process of the first one serves too, once it has begun.
    let mut reply = String::new();
    for _ in 0..20 {
        reply = ask(&pool, "fine").await;
        if reply == "Ok" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((reply.as_str(), pool.counts.started.load(Ordering::Relaxed) >= 2), ("Ok", true));
}

#[tokio::test]
async fn a_question_outlives_one_process() {
    // Each process answers once and dies with the next question.
    let script = "read -r line; echo OK; read -r line; exit 1";
    let (_helpers, pool) = helper("external_acl", script, "children = 1\nttl = \"0s\"");
    for number in 0..4 {
        assert_eq!(ask(&pool, &format!("line {number}")).await, "Ok", "{number}");
    }
}

#[tokio::test]
async fn processes_that_die_at_once_fail_soon() {
    let (_helpers, pool) = helper("external_acl", "exit 3", "timeout = \"20s\"");
    let began = std::time::Instant::now();
    let mut last = String::new();
    for _ in 0..5 {
        last = ask(&pool, "x").await;
    }
    assert_eq!(last, "helper-ended");
    assert!(began.elapsed() < Duration::from_secs(15), "no question waited for its whole time");
    let (_helpers, pool) = helpers_of("external_acl", "[\"/no/such/helper\"]", "timeout = \"20s\"");
    assert_eq!(ask(&pool, "x").await, "helper-ended");
}

#[tokio::test]
async fn a_flood_ends_the_process() {
    for script in [
        // A line without an end.
        "read -r line; tr '\\0' x < /dev/zero",
        // Two answers to one question: the second one would be taken for that of the next question.
        "while read -r line; do printf 'ERR\\nOK\\n'; done",
    ] {
        let (_helpers, pool) = helper("external_acl", script, "children = 1\nttl = \"0s\"\nnegative_ttl = \"0s\"");
        for number in 0..6 {
            let reply = ask(&pool, &format!("{number}")).await;
            assert_ne!(reply, "Ok", "{script}: question {number} got an answer that was not its own");
        }
    }
}

#[tokio::test]
async fn more_processes_serve_more_questions_and_the_queue_has_a_limit() {
    let script = "while read -r line; do sleep 0.3; echo OK; done";
    let (_helpers, pool) = helper("external_acl", script, "children = 3\nqueue = 2\nttl = \"0s\"");
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..12 {
        let pool = Arc::clone(&pool);
        tasks.spawn(async move {
            let mut refusals = 0_usize;
            loop {
                match ask(&pool, &format!("{number}")).await.as_str() {
                    "helper-busy" => refusals += 1,
                    reply => return (reply.to_owned(), refusals),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    let replies = tasks.join_all().await;
    assert!(replies.iter().all(|(reply, _)| reply == "Ok"), "{replies:?}");
    assert!(replies.iter().any(|(_, refusals)| *refusals > 0), "{replies:?}");
    assert_eq!(pool.counts.started.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_helper_that_is_gone_with_a_reload_answers_what_it_was_asked() {
    for concurrency in [0, 4] {
        let echo = if concurrency > 0 {
            "read -r i x; do (sleep 0.3; echo \"$i OK\") &"
        } else {
            "read -r x; do sleep 0.3; echo OK;"
        };
        let settings = format!("children = 1\nconcurrency = {concurrency}\nttl = \"0s\"");
        let (helpers, pool) = helper("external_acl", &format!("while {echo} done; wait"), &settings);
        let questions = async { tokio::join!(ask(&pool, "a"), ask(&pool, "b")) };
        let reload = async {
            tokio::time::sleep(Duration::from_millis(150)).await;
            helpers.have(&[]).unwrap();
        };
        let ((a, b), ()) = tokio::join!(questions, reload);
        assert_eq!((a.as_str(), b.as_str()), ("Ok", "Ok"), "{concurrency}");
        assert_eq!(ask(&pool, "c").await, "helper-gone");
    }
}

#[tokio::test]
async fn waiting_for_a_process_is_not_held_against_it() {
    let script = "while read -r line; do sleep 1.2; echo OK; done";
    let (_helpers, pool) = helper("external_acl", script, "children = 1\ntimeout = \"2s\"\nttl = \"0s\"");
    let (a, b) = tokio::join!(ask(&pool, "a"), ask(&pool, "b"));
    assert_eq!((a.as_str(), b.as_str(), pool.counts.started.load(Ordering::Relaxed)), ("Ok", "Ok", 1));
}

#[tokio::test]
async fn one_late_answer_fails_no_other_question() {
    let script = "while read -r i x; do [ $x = hang ] || (sleep 1.2; echo \"$i OK\") & done";
    let settings = "children = 1\nconcurrency = 4\ntimeout = \"2s\"\nttl = \"0s\"";
    let (_helpers, pool) = helper("external_acl", script, settings);
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        ask(&pool, "slow").await
    };
    // The process is killed for `hang` before it has answered `slow`, which goes to the next one.
    let (hang, slow) = tokio::join!(ask(&pool, "hang"), later);
    assert_eq!((hang.as_str(), slow.as_str()), ("helper-late", "Ok"));
}

#[tokio::test]
async fn a_handshake_keeps_its_process() {
    // The process remembers the first token of its client.
    let script = "while read -r word token; do case $word in YR) first=$token; echo TT challenge;; KK) echo AF $first-$token;; esac; done";
    let (_helpers, pool) = helper("ntlm", script, "children = 2");
    let begin = |token: &str| pool.converse(line::handshake(true, token).unwrap(), None);
    let (first, second) = tokio::join!(begin("aaa"), begin("bbb"));
    let (first, second) = (first.unwrap().1.unwrap(), second.unwrap().1.unwrap());
    let go_on = |conversation| pool.converse(line::handshake(false, "zzz").unwrap(), Some(conversation));
    let user = |reply: Result<(larder_people::answer::Answer, _), HelperTrouble>| {
        let (answer, conversation): (_, Option<Conversation>) = reply.unwrap();
        assert!(answer.result == Outcome::Ok && conversation.is_none());
        answer.get("user").unwrap().to_owned()
    };
    assert_eq!(user(go_on(second).await), "bbb-zzz");
    assert_eq!(user(go_on(first).await), "aaa-zzz");
    // A client that leaves in the middle gives its process back.
    for _ in 0..4 {
        drop(begin("ccc").await.unwrap());
    }
}

#[tokio::test]
async fn processes_have_no_secrets_of_the_server_and_end_with_it() {
    let script = "while read -r line; do echo \"OK user=${CARGO_MANIFEST_DIR:-none} tag=$$ log=$OWN\"; done";
    let (helpers, pool) = helper("external_acl", script, "environment = [\"OWN=mine\"]");
    let answer = pool.ask(b"x".to_vec()).await.unwrap();
    assert_eq!((answer.get("user"), answer.get("log")), (Some("none"), Some("mine")));
    let process = format!("/proc/{}", answer.get("tag").unwrap());
    assert!(Path::new(&process).exists());
    helpers.stop();
    assert!(!Path::new(&process).exists(), "the process has ended with its server");
    assert_eq!(ask(&pool, "y").await, "helper-gone");
}

/// The path of a helper of Squid's package; `None`, and a line about it, where it is not installed.
fn of_squid(name: &str) -> Option<String> {
    let path = format!("/usr/lib/squid/{name}");
    let is_there = Path::new(&path).is_file();
    if !is_there {
        eprintln!("skipped: {path} is not installed");
    }
    is_there.then_some(path)
}

#[tokio::test]
async fn squids_own_helpers_unmodified() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    if let Some(path) = of_squid("basic_ncsa_auth") {
        let users = file("users", "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n");
        let (_helpers, pool) = helpers_of("basic", &format!("[{path:?}, {users:?}]"), "");
        let basic =
            |user: &str, password: &str| String::from_utf8(line::basic(user.as_bytes(), password.as_bytes())).unwrap();
        assert_eq!(ask(&pool, &basic("ada", "secret")).await, "Ok");
        assert!(ask(&pool, &basic("ada", "wrong")).await.starts_with("Err"));
        assert!(ask(&pool, &basic("eve x", "se cret")).await.starts_with("Err"));
        let (_helpers, pool) = helpers_of("basic", &format!("[{path:?}, {users:?}]"), "concurrency = 5");
        // It knows no channels, and takes the number for the user.
        assert_eq!(ask(&pool, &basic("ada", "secret")).await, "helper-answer");
    }
    if let Some(path) = of_squid("digest_file_auth") {
        let users = file("digests", "ada:office:0123456789abcdef0123456789abcdef\n");
        let (_helpers, pool) = helpers_of("digest", &format!("[{path:?}, \"-c\", {users:?}]"), "");
        let of = |user| String::from_utf8(line::digest(user, "office").unwrap()).unwrap();
        assert_eq!(ask(&pool, &of("ada")).await, "Ok ha1=0123456789abcdef0123456789abcdef");
        assert!(ask(&pool, &of("eve")).await.starts_with("Err"));
    }
    if let Some(path) = of_squid("ext_file_userip_acl") {
        let table = file("userip", "192.0.2.7 ada\n198.51.100.0/255.255.255.0 ALL\n");
        let settings = "format = \"%SRC %LOGIN\"";
        let (_helpers, pool) = helpers_of("external_acl", &format!("[{path:?}, \"-f\", {table:?}]"), settings);
        assert_eq!(ask(&pool, "192.0.2.7 ada -").await, "Ok");
        assert!(ask(&pool, "192.0.2.7 eve -").await.starts_with("Err"));
        assert_eq!(ask(&pool, "198.51.100.9 eve -").await, "Ok");
    }
    if let Some(path) = of_squid("url_fake_rewrite") {
        for settings in ["", "concurrency = 10"] {
            let (_helpers, pool) = helpers_of("url_rewrite", &format!("[{path:?}]"), settings);
            assert_eq!(ask(&pool, "http://a.test/ 192.0.2.7/- - GET").await, "Err", "it leaves all as it is");
        }
    }
    if let Some(path) = of_squid("storeid_file_rewrite") {
        let table = file("ids", "^http://m[0-9]+\\.test/(.*)\thttp://m.internal/$1\n");
        let (_helpers, pool) = helpers_of("store_id", &format!("[{path:?}, {table:?}]"), "");
        assert_eq!(ask(&pool, "http://m7.test/x 192.0.2.7/- - GET").await, "Ok store-id=http://m.internal/x");
        assert_eq!(ask(&pool, "http://other.test/x 192.0.2.7/- - GET").await, "Err");
    }
    if let Some(path) = of_squid("ntlm_fake_auth") {
        let (_helpers, pool) = helpers_of("ntlm", &format!("[{path:?}]"), "");
        let first = "TlRMTVNTUAABAAAAB7IIAAAAAAAAAAAAAAAAAAAAAAA=";
        let (answer, conversation) = pool.converse(line::handshake(true, first).unwrap(), None).await.unwrap();
        assert!(answer.result == Outcome::Continues && answer.get("token").unwrap().starts_with("TlRMTVNTUAAC"));
        let third = third_message("ada");
        let (answer, _) = pool.converse(line::handshake(false, &third).unwrap(), conversation).await.unwrap();
        // It writes a domain before the name.
        assert!(answer.result == Outcome::Ok && answer.get("user").is_some_and(|user| user.ends_with("ada")));
    }
}

/// The third message of NTLM for a user without a domain, with empty proofs, in base64.
fn third_message(user: &str) -> String {
    let mut bytes = b"NTLMSSP\0\x03\0\0\0".to_vec();
    let part = |length: usize, offset: usize| {
        let length = u16::try_from(length).unwrap().to_le_bytes();
        [&length[..], &length[..], &u32::try_from(offset).unwrap().to_le_bytes()[..]].concat()
    };
    let begin = 64;
    // Proofs, domain, user, host, key: all but the user are empty.
    for length in [0, 0, 0, user.len(), 0, 0] {
        bytes.extend(part(length, begin));
    }
    bytes.extend(0x0000_0002_u32.to_le_bytes());
    bytes.extend(user.as_bytes());
    crate::base64::encode(&bytes)
}
