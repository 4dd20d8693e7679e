//! Logins by LDAP: against slapd, where it is installed, and against servers that answer nonsense.

use super::{LoginRefusal, LoginReply, LoginState, People};
use crate::config::Loaded;
use crate::tls;
use larder_people::ber;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const LDIF: &str = "dn: dc=example\nobjectClass: dcObject\nobjectClass: organization\no: e\ndc: example\n\n\
    dn: ou=people,dc=example\nobjectClass: organizationalUnit\nou: people\n\n\
    dn: uid=ada,ou=people,dc=example\nobjectClass: inetOrgPerson\nuid: ada\ncn: Ada\nsn: A\nuserPassword: geheim\n\
    seeAlso: cn=readers,dc=example\ndescription: cn=admins,dc=example\n\n\
    dn: cn=staff,dc=example\nobjectClass: groupOfNames\ncn: staff\nmember: uid=ada,ou=people,dc=example\n";

struct Slapd {
    child: Child,
    port: u16,
    tls_port: u16,
    /// The roots by which its certificate, which is for 127.0.0.1, is believed.
    roots: tls::Roots,
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

/// Writes a certificate for 127.0.0.1 and its key into the folder, for slapd; the roots by which it is believed.
fn certificate(folder: &std::path::Path) -> tls::Roots {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap();
    let (issuer, leaf_key) = (Issuer::new(params, key), KeyPair::generate().unwrap());
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&leaf_key, &issuer).unwrap();
    std::fs::write(folder.join("chain.pem"), leaf.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), leaf_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("roots.pem"), root.pem()).unwrap();
    tls::Roots { certificates: vec![root.der().clone()], troubles: Vec::new() }
}

/// `None` where it is not installed.
fn slapd() -> Option<Slapd> {
    if !std::path::Path::new("/usr/sbin/slapd").exists() {
        println!("skipped: slapd is not installed");
        return None;
    }
    let (folder, port, tls_port) = (tempfile::tempdir().unwrap(), free_port(), free_port());
    let (here, roots) = (folder.path().display(), certificate(folder.path()));
    let conf = format!(
        "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\ninclude /etc/ldap/schema/inetorgperson.schema\n\
         TLSCACertificateFile {here}/roots.pem\nTLSCertificateFile {here}/chain.pem\nTLSCertificateKeyFile {here}/key.pem\n\
         modulepath /usr/lib/ldap\nmoduleload back_mdb\ndatabase mdb\nsuffix dc=example\ndirectory {here}\nrootdn cn=larder,dc=example\nrootpw dienst\n"
    );
    let (conf_file, ldif) = (folder.path().join("slapd.conf"), folder.path().join("all.ldif"));
    std::fs::write(&conf_file, conf).unwrap();
    std::fs::write(&ldif, LDIF).unwrap();
    let add = Command::new("/usr/sbin/slapadd").arg("-f").arg(&conf_file).arg("-l").arg(&ldif).output().unwrap();
    assert!(add.status.success(), "{}", String::from_utf8_lossy(&add.stderr));
    let url = format!("ldap://127.0.0.1:{port} ldaps://127.0.0.1:{tls_port}");
    let mut command = Command::new("/usr/sbin/slapd");
    command.arg("-f").arg(&conf_file).args(["-h", &url, "-d", "0"]).stdout(Stdio::null()).stderr(Stdio::null());
    let slapd = Slapd { child: command.spawn().unwrap(), port, tls_port, roots, _folder: folder };
    for _ in 0..500 {
        if [port, tls_port].iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()) {
            return Some(slapd);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("slapd does not listen");
}

fn loaded(settings: &str) -> Loaded {
    let text = format!("[[login]]\nname = \"a\"\nscheme = \"basic\"\nfailures = 1000\n{settings}");
    Loaded::parse("test", &text, &[]).unwrap_or_else(|report| panic!("{report}"))
}

pub(super) fn login(settings: &str) -> (People, Arc<LoginState>) {
    login_by(settings, &tls::Roots { certificates: Vec::new(), troubles: Vec::new() })
}

/// A login whose servers have to be known by these roots.
pub(super) fn login_by(settings: &str, roots: &tls::Roots) -> (People, Arc<LoginState>) {
    let people = People::default();
    people.fetch_with(tls::client_config(&roots.clone().into()).unwrap());
    let login = reload(&people, settings);
    (people, login)
}

/// Puts these settings in force, as the start and a reload do.
pub(super) fn reload(people: &People, settings: &str) -> Arc<LoginState> {
    let config = loaded(settings).config;
    people.have(people.prepare(&config).unwrap(), &config).unwrap();
    people.login("a").unwrap()
}

pub(super) async fn ask((people, login): &(People, Arc<LoginState>), user: &str, password: &str) -> LoginReply {
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
            ("àda", "geheim"),
            (&long, "geheim"),
        ] {
            assert_eq!(ask(&at, user, password).await.err(), Some(LoginRefusal::Wrong), "{way}: {user:?} {password:?}");
        }
    }
    std::fs::write(&secret, "anders").unwrap();
    let at = login(&format!("{servers}{search}{service}"));
    assert_eq!(ask(&at, "ada", "geheim").await.err(), Some(LoginRefusal::Trouble("login-ldap")));
}

#[tokio::test]
async fn passwords_go_to_servers_that_prove_who_they_are() {
    let Some(slapd) = slapd() else { return };
    let (plain, protected) = (slapd.port, slapd.tls_port);
    let direct = "ldap_user_dn = \"uid={user},ou=people,dc=example\"\n";
    let nobody = tls::Roots { certificates: Vec::new(), troubles: Vec::new() };
    let trouble = Some(LoginRefusal::Trouble("login-ldap"));
    for (server, more, roots, refused) in [
        (format!("ldaps://127.0.0.1:{protected}"), "", &slapd.roots, None),
        (format!("ldap://127.0.0.1:{plain}"), "ldap_start_tls = true\n", &slapd.roots, None),
        // Of another authority, for another name, and TLS where none is spoken.
        (format!("ldaps://127.0.0.1:{protected}"), "", &nobody, trouble.clone()),
        (format!("ldap://127.0.0.1:{plain}"), "ldap_start_tls = true\n", &nobody, trouble.clone()),
        (format!("ldaps://localhost:{protected}"), "", &slapd.roots, trouble.clone()),
        (format!("ldap://localhost:{plain}"), "ldap_start_tls = true\n", &slapd.roots, trouble.clone()),
        (format!("ldaps://127.0.0.1:{plain}"), "", &slapd.roots, trouble.clone()),
    ] {
        let at = login_by(&format!("ttl = \"0s\"\nldap = [{server:?}]\n{direct}{more}"), roots);
        // The second question may go on the connection of the first one.
        for _ in 0..2 {
            let right = ask(&at, "ada", "geheim").await;
            assert_eq!(right.err(), refused, "{server} {more}");
        }
        let wrong = refused.or(Some(LoginRefusal::Wrong));
        assert_eq!(ask(&at, "ada", "falsch").await.err(), wrong, "{server} {more}");
    }
}

#[tokio::test]
async fn groups_of_slapd_are_in_an_attribute_of_the_user() {
    let Some(slapd) = slapd() else { return };
    let server = format!("ldap = [\"ldap://127.0.0.1:{}\"]\nldap_groups = \"seealso\"\n", slapd.port);
    for way in [
        "ldap_base = \"ou=people,dc=example\"\nldap_filter = \"(uid={user})\"\n",
        "ldap_user_dn = \"uid={user},ou=people,dc=example\"\n",
    ] {
        for (base, wanted) in
            [("", &[Box::from("readers")][..]), ("ldap_groups_base = \"ou=people,dc=example\"\n", &[])]
        {
            let at = login(&format!("{server}{way}{base}"));
            let (user, _) = ask(&at, "ada", "geheim").await.unwrap();
            assert_eq!(&*user.groups, wanted, "{way} {base}");
        }
    }
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
    result(id, 0x61, code)
}

/// A message with this number and operation, and nothing but a result (RFC 4511 section 4.1.9) in it.
pub(super) fn result(id: u32, operation: u8, code: u32) -> Vec<u8> {
    let mut out = Vec::new();
    ber::push_with(&mut out, ber::SEQUENCE, |out| {
        ber::push_integer(out, id);
        ber::push_with(out, operation, |out| {
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
