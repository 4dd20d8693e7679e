//! The variables by which tools find a proxy and the certificates to trust.
//!
//! Programs of the Java runtime read `JAVA_TOOL_OPTIONS` (`run::java`). Not reached by variables are browsers (own
//! profiles), the Docker daemon (another process does its downloads), and programs with certificates built in; their
//! hosts are tunnelled after the first refusal. `NO_PROXY` stays as the user has it, localhost is not added: what the
//! user excludes is excluded, nothing else.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// HTTP and HTTPS through the proxy, in each spelling that some tool reads. Other protocols are left alone.
const PROXY_VARIABLES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    // These override the tool's own configuration file.
    "npm_config_proxy",
    "npm_config_https_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
    "CARGO_HTTP_PROXY",
];

/// A file with the certificates to trust.
const BUNDLE_VARIABLES: &[&str] = &[
    "SSL_CERT_FILE",      // OpenSSL, Go, Ruby, rustls
    "REQUESTS_CA_BUNDLE", // Python's requests
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS", // Node, Bun, Yarn
    "npm_config_cafile",
    "CARGO_HTTP_CAINFO",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "HTTPLIB2_CA_CERTS",
    "NIX_SSL_CERT_FILE",
    "DENO_CERT",
    "BUNDLE_SSL_CA_CERT", // Ruby's bundler
    "COMPOSER_CAFILE",
    "PERL_LWP_SSL_CA_FILE",
    "HEX_CACERTS_PATH",
];

/// The variable that each program of the Java runtime reads.
pub const JAVA_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// The files that the variables point to.
#[derive(Clone, Debug)]
pub struct Files {
    /// All certificates to trust. Readable by everybody: apt downloads as a user of its own.
    pub bundle: PathBuf,
    /// wget reads no variable for certificates, but it reads one for its configuration.
    pub wgetrc: PathBuf,
    /// apt reads no variable for certificates either, but one for its configuration.
    pub apt_conf: PathBuf,
    /// The certificates once more, for the Java runtime.
    pub trust_store: PathBuf,
}

impl Files {
    /// Their places in `folder`.
    pub fn below(folder: &Path) -> Files {
        Files {
            bundle: folder.join("ca-bundle.pem"),
            wgetrc: folder.join("wgetrc"),
            apt_conf: folder.join("apt.conf"),
            trust_store: folder.join("trust.jks"),
        }
    }
}

/// Everything that the child gets beside its inherited environment.
pub fn variables(proxy: SocketAddr, files: &Files) -> Vec<(&'static str, OsString)> {
    let url = OsString::from(format!("http://{proxy}"));
    let proxies = PROXY_VARIABLES.iter().map(|name| (*name, url.clone()));
    let bundles = BUNDLE_VARIABLES.iter().map(|name| (*name, files.bundle.clone().into_os_string()));
    let others = [
        // Node heeds the proxy variables only when told so.
        ("NODE_USE_ENV_PROXY", OsString::from("1")),
        ("WGETRC", files.wgetrc.clone().into_os_string()),
        ("APT_CONFIG", files.apt_conf.clone().into_os_string()),
    ];
    proxies.chain(bundles).chain(others).collect()
}

/// Settings that the user has made already and that must go on to hold.
pub struct User {
    variables: HashMap<OsString, OsString>,
}

impl User {
    /// The environment of this process.
    pub fn of_this_process() -> User {
        User { variables: std::env::vars_os().collect() }
    }

    /// Files with certificates that the user trusts in one of the tools: each of them is trusted in the bundle.
    pub fn certificate_files(&self) -> Vec<PathBuf> {
        let named = BUNDLE_VARIABLES.iter().filter_map(|name| self.variable(name)).map(PathBuf::from);
        let of_wget = self.wgetrc_of_user().and_then(|text| wget_certificates(&text));
        let mut files: Vec<PathBuf> = named.chain(of_wget).filter(|path| path.is_file()).collect();
        files.sort();
        files.dedup();
        files
    }

    /// The user's configuration of wget with ours behind it: the last line wins.
    pub fn wgetrc(&self, proxy: SocketAddr, bundle: &Path) -> Vec<u8> {
        let mut text = self.wgetrc_of_user().unwrap_or_default();
        let bundle = bundle.display();
        let ours = format!("\nhttp_proxy = http://{proxy}\nhttps_proxy = http://{proxy}\nca_certificate = {bundle}\n");
        text.extend_from_slice(ours.as_bytes());
        text
    }

    /// The user's `APT_CONFIG` with ours behind it.
    pub fn apt_conf(&self, proxy: SocketAddr, bundle: &Path) -> Vec<u8> {
        let mut text = self.variable("APT_CONFIG").and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
        let bundle = bundle.display();
        let ours = format!(
            "\nAcquire::http::Proxy \"http://{proxy}\";\nAcquire::https::Proxy \"http://{proxy}\";\n\
             Acquire::https::CAInfo \"{bundle}\";\n"
        );
        text.extend_from_slice(ours.as_bytes());
        text
    }

    /// `JAVA_TOOL_OPTIONS` for programs of the Java runtime.
    pub fn java_options(&self, proxy: SocketAddr, trust_store: &Path) -> OsString {
        let of_user = self.variable(JAVA_OPTIONS).map(OsString::as_os_str);
        super::java::tool_options(proxy, trust_store, of_user)
    }

    /// The variables that keep a request to this address from a proxy of the user's, where there is one.
    pub fn past_proxy(&self, address: IpAddr) -> Vec<(&'static str, OsString)> {
        let all = ["all_proxy", "ALL_PROXY"].iter();
        if !all.chain(PROXY_VARIABLES).any(|name| self.variable(name).is_some()) {
            return Vec::new();
        }
        let name_and_value = |name: &'static str| {
            let mut value = self.variable(name).cloned().unwrap_or_default();
            if !value.is_empty() {
                value.push(",");
            }
            value.push(address.to_string());
            (name, value)
        };
        // Some tools read the one, some the other, and the first that is set counts.
        let names = ["no_proxy", "NO_PROXY"];
        let is_set = |name: &&&str| self.variable(name).is_some();
        match names.iter().filter(is_set).count() {
            0 => names.map(name_and_value).into(),
            _ => names.iter().filter(is_set).map(|name| name_and_value(name)).collect(),
        }
    }

    fn wgetrc_of_user(&self) -> Option<Vec<u8>> {
        let named = self.variable("WGETRC").map(PathBuf::from);
        let path = named.or_else(|| Some(Path::new(self.variable("HOME")?).join(".wgetrc")))?;
        std::fs::read(path).ok()
    }

    fn variable(&self, name: &str) -> Option<&OsString> {
        self.variables.get(OsStr::new(name)).filter(|value| !value.is_empty())
    }
}

/// The value of `ca_certificate`; wget takes `-` and `_` alike and any case.
fn wget_certificates(text: &[u8]) -> Option<PathBuf> {
    let text = String::from_utf8_lossy(text);
    let plain = |name: &str| name.trim().to_ascii_lowercase().replace(['-', '_'], "");
    let mut settings = text.lines().filter_map(|line| line.split_once('='));
    settings.rfind(|(name, _)| plain(name) == "cacertificate").map(|(_, value)| PathBuf::from(value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(folder: &Path, variables: &[(&str, &str)]) -> User {
        let home = (OsString::from("HOME"), folder.as_os_str().to_owned());
        let files = variables.iter().map(|(name, file)| (OsString::from(name), folder.join(file).into_os_string()));
        User { variables: files.chain([home]).collect() }
    }

    #[test]
    fn what_the_user_trusts_is_trusted_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for file in ["pip.pem", "wget.pem"] {
            std::fs::write(path(file), "").unwrap();
        }
        std::fs::write(path(".wgetrc"), format!("tries = 3\nCA-Certificate = {}\n", path("wget.pem").display()))
            .unwrap();
        let user = user(
            folder.path(),
            &[("PIP_CERT", "pip.pem"), ("REQUESTS_CA_BUNDLE", "pip.pem"), ("CURL_CA_BUNDLE", "no")],
        );
        assert_eq!(user.certificate_files(), [path("pip.pem"), path("wget.pem")]);
    }

    #[test]
    fn the_mirror_is_not_asked_through_a_proxy_of_the_user() {
        let past = |variables: &[(&str, &str)]| {
            let pair = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
            let user = User { variables: variables.iter().map(pair).collect() };
            let past = user.past_proxy(IpAddr::from([127, 0, 0, 1]));
            past.iter().map(|(name, value)| format!("{name}={} ", value.to_str().unwrap())).collect::<String>()
        };
        assert_eq!(past(&[("NO_PROXY", "a.test")]), "");
        assert_eq!(past(&[("https_proxy", "http://p.test")]), "no_proxy=127.0.0.1 NO_PROXY=127.0.0.1 ");
        assert_eq!(past(&[("ALL_PROXY", "x"), ("NO_PROXY", "a.test,b")]), "NO_PROXY=a.test,b,127.0.0.1 ");
    }

    #[test]
    fn configuration_files_go_on_to_hold() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".wgetrc"), "tries = 3").unwrap();
        std::fs::write(folder.path().join("apt"), "APT::Get::Yes \"1\";").unwrap();
        let user = user(folder.path(), &[("APT_CONFIG", "apt")]);
        let proxy = "127.0.0.1:8".parse().unwrap();
        assert_eq!(
            String::from_utf8(user.wgetrc(proxy, Path::new("/t/ca.pem"))).unwrap(),
            "tries = 3\nhttp_proxy = http://127.0.0.1:8\nhttps_proxy = http://127.0.0.1:8\nca_certificate = /t/ca.pem\n"
        );
        assert_eq!(
            String::from_utf8(user.apt_conf(proxy, Path::new("/t/ca.pem"))).unwrap(),
            "APT::Get::Yes \"1\";\nAcquire::http::Proxy \"http://127.0.0.1:8\";\n\
             Acquire::https::Proxy \"http://127.0.0.1:8\";\nAcquire::https::CAInfo \"/t/ca.pem\";\n"
        );
    }
}
