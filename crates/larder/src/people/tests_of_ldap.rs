//! Logins by LDAP: against slapd, where it is installed, and against servers that answer nonsense.

use super::{LoginRefusal, LoginReply, LoginState, People};
use crate::config::Loaded;
use larder_people::ber;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const LDIF: &str = "dn: dc=example\nobjectClass: dcObject\nobjectClass: organization\no: e\ndc: example\n\n\
    dn: ou=people,dc=example\nobjectClass: organizationalUnit\nou: people\n\n\
    dn: uid=ada,ou=people,dc=example\nobjectClass: inetOrgPerson\nuid: ada\ncn: Ada\nsn: A\nuserPassword: geheim\n\n\
    dn: cn=staff,dc=example\nobjectClass: groupOfNames\ncn: staff\nmember: uid=ada,ou=people,dc=example\n";

struct Slapd {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Slapd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `None` where it is not installed.
fn slapd() -> Option<Slapd> {
    if !std::path::Path::new("/usr/sbin/slapd").exists() {
        println!("skipped: slapd is not installed");
        return None;
    }
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let here = folder.path().display();
    let conf = format!(
        "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\ninclude /etc/ldap/schema/inetorgperson.schema\n\
         modulepath /usr/lib/ldap\nmoduleload back_mdb\ndatabase mdb\nsuffix dc=example\ndirectory {here}\nrootdn cn=larder,dc=example\nrootpw dienst\n"
    );
    let (conf_file, ldif) = (folder.path().join("slapd.conf"), folder.path().join("all.ldif"));
    std::fs::write(&conf_file, conf).unwrap();
    std::fs::write(&ldif, LDIF).unwrap();
    let add = Command::new("/usr/sbin/slapadd").arg("-f").arg(&conf_file).arg("-l").arg(&ldif).output().unwrap();
    assert!(add.status.success(), "{}", String::from_utf8_lossy(&add.stderr));
    let url = format!("ldap://127.0.0.1:{port}");
    let mut command = Command::new("/usr/sbin/slapd");
    command.arg("-f").arg(&conf_file).args(["-h", &url, "-d", "0"]).stdout(Stdio::null()).stderr(Stdio::null());
    let slapd = Slapd { child: command.spawn().unwrap(), port, _folder: folder };
    for _ in 0..500 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(slapd);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("slapd does not listen");
}

fn login(settings: &str) -> (People, Arc<LoginState>) {
    let text = format!("[[login]]\nname = \"a\"\nscheme = \"basic\"\nfailures = 1000\n{settings}");
    let loaded = Loaded::parse("test", &text, &[]).unwrap_or_else(|report| panic!("{report}"));
    let people = People::default();
    people.have(people.prepare(&loaded.config).unwrap(), &loaded.config).unwrap();
    let login = people.login("a").unwrap();
    (people, login)
}

async fn ask((people, login): &(People, Arc<LoginState>), user: &str, password: &str) -> LoginReply {
    login.check_password(Ipv4Addr::LOCALHOST.into(), (user, password), &people.helpers).await
}

#[tokio::test]
async fn users_of_slapd_log_in_and_nobody_else() {
    let Some(slapd) = slapd() else { return };
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "dienst\n").unwrap();
    let (port, away) = (slapd.port, free_port());
    let groups = "ldap_groups_base = \"dc=example\"\nldap_groups_filter = \"(member={dn})\"\n";
    let service = format!("ldap_bind_dn = \"cn=larder,dc=example\"\nldap_password_file = {secret:?}\n");
    let search = "ldap_base = \"ou=people,dc=example\"\nldap_filter = \"(uid={user})\"\n";
    let direct = "ldap_user_dn = \"uid={user},ou=people,dc=example\"\n";
    // The first server is away.
    let servers = format!("ldap = [\"ldap://127.0.0.1:{away}\", \"ldap://127.0.0.1:{port}\"]\n");
    for way in [format!("{search}{service}"), search.to_owned(), direct.to_owned(), format!("{direct}{service}")] {
        let at = login(&format!("{servers}{way}{groups}"));
        for typed in ["ada", "ADA"] {
            let (user, _) = ask(&at, typed, "geheim").await.unwrap_or_else(|refusal| panic!("{way}: {refusal:?}"));
            assert_eq!((&*user.name, &*user.groups), ("ada", &[Box::from("staff")][..]), "{way}");
        }
        let long = "x".repeat(200);
        for (user, password) in [
            ("ada", "falsch"),
            ("ada", ""),
            ("ada", "geheim\0"),
            ("bob", "geheim"),
            ("*", "geheim"),
            ("a*", "geheim"),
            ("a)(uid=*", "geheim"),
            ("ada)(|(uid=*", "geheim"),
            ("x,ou=admins", "geheim"),
            ("ada,ou=people,dc=example", "geheim"),
            ("ada ", "geheim"),
            ("ada\0", "geheim"),
            (&long, "geheim"),
        ] {
            assert_eq!(ask(&at, user, password).await.err(), Some(LoginRefusal::Wrong), "{way}: {user:?} {password:?}");
        }
    }
    std::fs::write(&secret, "anders").unwrap();
    let at = login(&format!("{servers}{search}{service}"));
    assert_eq!(ask(&at, "ada", "geheim").await.err(), Some(LoginRefusal::Trouble("login-ldap")));
}

/// A server that sends this to each request, and closes the connection.
fn server_that_sends(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1_024]);
            let _ = stream.write_all(&bytes);
            // Open and silent from here on where there is nothing to send.
            silent.extend(bytes.is_empty().then_some(stream));
        }
    });
    address
}

/// The answer to a bind with this number and code.
fn bound(id: u32, code: u32) -> Vec<u8> {
    let mut out = Vec::new();
    ber::push_with(&mut out, ber::SEQUENCE, |out| {
        ber::push_integer(out, id);
        ber::push_with(out, 0x61, |out| {
            ber::push_number(out, ber::ENUMERATED, code);
            ber::push(out, ber::OCTETS, b"");
            ber::push(out, ber::OCTETS, b"");
        });
    });
    out
}

#[tokio::test]
async fn servers_that_answer_nonsense_let_nobody_in() {
    let direct = "ldap_user_dn = \"uid={user},dc=example\"\nldap_timeout = \"500ms\"\n";
    let trouble = Some(LoginRefusal::Trouble("login-ldap"));
    for (bytes, wanted) in [
        (bound(1, 49), Some(LoginRefusal::Wrong)),
        (bound(2, 0), trouble.clone()),
        (bound(0, 0), trouble.clone()),
        (bound(1, 10), trouble.clone()),
        (bound(1, 51), trouble.clone()),
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), trouble.clone()),
        (vec![0x30, 0x84, 0x7f, 0xff, 0xff, 0xff], trouble.clone()),
        (vec![0x30, 0x05, 0x02], trouble.clone()),
        (Vec::new(), trouble.clone()),
    ] {
        let at = login(&format!("ldap = [\"ldap://{}\"]\n{direct}", server_that_sends(bytes.clone())));
        assert_eq!(ask(&at, "ada", "geheim").await.err(), wanted, "{bytes:?}");
    }
    // The double works, and a connection that it has closed is not the end: the second question has a new one.
    let at = login(&format!("ttl = \"0s\"\nldap = [\"ldap://{}\"]\n{direct}", server_that_sends(bound(1, 0))));
    for _ in 0..2 {
        assert!(ask(&at, "ada", "geheim").await.is_ok());
    }
}

#[test]
fn settings_that_do_not_fit_are_named() {
    for (settings, wanted) in [
        ("ldap = [\"ldap://localhost\"]", "ldap_user_dn"),
        ("ldap = [\"ldaps://a.example\"]\nldap_base = \"dc=a\"", "both `ldap_base` and `ldap_filter`"),
        ("ldap = [\"ldaps://a.example\"]\nldap_base = \"dc=a\"\nldap_filter = \"(uid=ada)\"", "ldap_filter"),
        ("ldap = [\"ldap://a.example\"]\nldap_user_dn = \"uid={user}\"", "as they are"),
        ("ldap_user_dn = \"uid={user}\"", "need `ldap`"),
        (
            "ldap = [\"ldaps://a.example\"]\nldap_user_dn = \"uid={user}\"\nldap_bind_dn = \"cn=a\"",
            "ldap_password_file",
        ),
    ] {
        let text = format!("[[login]]\nname = \"a\"\nscheme = \"basic\"\n{settings}\n");
        let report = Loaded::parse("test", &text, &[]).err().map(|report| report.to_string()).unwrap_or_default();
        assert!(report.contains(wanted), "{settings}: {report}");
    }
}
