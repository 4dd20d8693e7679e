//! One order at the authority, from the account to the chain (RFC 8555 section 7).

use super::client::{Client, Heard, plain};
use super::folder::Folder;
use super::issued::Issued;
use crate::clock;
use crate::config::{Acme, AcmeChallenge};
use crate::tls::site_certificates::{OpenChallenge, SiteCertificates};
use instant_acme::{
    Account, AccountCredentials, AuthorizationHandle, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How long the authority may take to look at a challenge, and then to issue a certificate.
const POLLED_FOR: Duration = Duration::from_secs(120);
/// The pause before the first look.
const POLL_FIRST: Duration = Duration::from_millis(250);
/// The factor between the pauses.
const POLL_BACKOFF: f32 = 1.5;

/// All that an order needs.
pub(super) struct Authority<'w> {
    /// The settings.
    pub acme: Acme,
    /// The place of the account and the certificates.
    pub folder: Folder,
    /// By which the authority is verified.
    pub tls: Arc<ClientConfig>,
    /// Where challenges are opened.
    pub certificates: Arc<SiteCertificates>,
    /// Called when a challenge for requests is open.
    pub opened: &'w (dyn Fn() + Send + Sync),
    /// Facts about the answers.
    pub heard: Arc<Heard>,
}

/// Why there is no certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// In words for the operator.
    pub text: String,
    /// For the schedule.
    pub kind: TroubleKind,
}

/// The kind of a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TroubleKind {
    /// The authority gave no answer.
    Unreachable,
    /// It has had enough for now, and names a pause or none.
    Limited(Option<Duration>),
    /// It does not know the account.
    NoAccount,
    /// It refuses, or its answer is not usable.
    Refused,
}

impl Trouble {
    fn refused(text: impl Into<String>) -> Trouble {
        Trouble { text: text.into(), kind: TroubleKind::Refused }
    }
}

/// The account in its file.
#[derive(Serialize, Deserialize)]
struct KeptAccount {
    contact: Vec<String>,
    credentials: AccountCredentials,
}

impl Authority<'_> {
    /// Orders a certificate for these names, shows that they lead here, and keeps it.
    pub(super) async fn issue(&self, names: &[Arc<str>], challenge: AcmeChallenge) -> Result<Issued, Trouble> {
        match self.issue_once(names, challenge).await {
            // An authority that has forgotten an account takes a new one.
            Err(Trouble { kind: TroubleKind::NoAccount, .. }) => {
                self.folder.forget_account();
                self.issue_once(names, challenge).await
            }
            issued => issued,
        }
    }

    async fn issue_once(&self, names: &[Arc<str>], challenge: AcmeChallenge) -> Result<Issued, Trouble> {
        let account = self.account().await?;
        let identifiers: Vec<Identifier> = names.iter().map(|name| Identifier::Dns(name.to_string())).collect();
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await.map_err(|error| self.trouble(error))?;
        if order.state().authorizations.len() > names.len() {
            return Err(Trouble::refused("the authority wants more proofs than there are names"));
        }
        // They close when this function ends, however it does.
        let open = self.open_challenges(&mut order, names, challenge).await?;
        let policy = RetryPolicy::new().initial_delay(POLL_FIRST).backoff(POLL_BACKOFF).timeout(POLLED_FOR);
        match order.poll_ready(&policy).await {
            Ok(OrderStatus::Ready) => {}
            Ok(_) => return Err(self.why_invalid(&mut order, challenge, None).await),
            Err(error) => match self.trouble(error) {
                trouble if trouble.kind == TroubleKind::Refused => {
                    return Err(self.why_invalid(&mut order, challenge, Some(trouble)).await);
                }
                trouble => return Err(trouble),
            },
        }
        drop(open);
        let unusable =
            |error: rcgen::Error| Trouble::refused(format!("no request for a certificate can be made: {error}"));
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(unusable)?;
        let named: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(named).map_err(unusable)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(unusable)?;
        order.finalize_csr(request.der()).await.map_err(|error| self.trouble(error))?;
        let chain = order.poll_certificate(&policy).await.map_err(|error| self.trouble(error))?;
        let pem = format!("{}{chain}", key.serialize_pem());
        let issued = Issued::read(pem.as_bytes(), names)
            .map_err(|trouble| Trouble::refused(format!("the certificate is not usable: {trouble}")))?;
        if issued.not_after <= clock::now() {
            return Err(Trouble::refused("the certificate has ended already: look at the clock of this machine"));
        }
        // A certificate that can't be kept is ordered again and again, until the authority has had enough: it is not used.
        self.folder
            .keep_certificate(names, &pem)
            .map_err(|trouble| Trouble::refused(format!("the certificate can't be kept: {trouble}")))?;
        Ok(issued)
    }

    /// Opens a challenge for each name that the authority has no proof for yet, and tells the authority.
    async fn open_challenges(
        &self,
        order: &mut Order,
        names: &[Arc<str>],
        challenge: AcmeChallenge,
    ) -> Result<Vec<OpenChallenge>, Trouble> {
        let mut open = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| self.trouble(error))?;
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                other => return Err(Trouble::refused(format!("an authorization is {other:?} before it has begun"))),
            }
            open.push(self.open_challenge(&mut authorization, names, challenge).await?);
        }
        Ok(open)
    }

    async fn open_challenge<'h>(
        &self,
        authorization: &'h mut AuthorizationHandle<'h>,
        names: &[Arc<str>],
        challenge: AcmeChallenge,
    ) -> Result<OpenChallenge, Trouble> {
        let wanted = authorization.identifier().to_string();
        let Some(name) = names.iter().find(|name| ***name == *wanted) else {
            return Err(Trouble::refused(format!(
                "the authority wants a proof for {}, which was not asked for",
                plain(&wanted)
            )));
        };
        let kind = kind_of(challenge);
        let Some(mut handle) = authorization.challenge(kind) else {
            return Err(Trouble::refused(format!("the authority offers no {} for {name}", challenge.as_str())));
        };
        let proof = handle.key_authorization();
        let open = match challenge {
            AcmeChallenge::TlsAlpn01 => self.certificates.open_tls(name, proof.as_str()),
            _ => self.certificates.open_http(&handle.token, proof.as_str()),
        };
        let open = open.ok_or_else(|| Trouble::refused("a challenge of the authority is not usable"))?;
        (self.opened)();
        handle.set_ready().await.map_err(|error| self.trouble(error))?;
        Ok(open)
    }

    /// The words of the authority about the names that it could not validate; `told` where it has none about a name.
    async fn why_invalid(&self, order: &mut Order, challenge: AcmeChallenge, told: Option<Trouble>) -> Trouble {
        let mut words = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let Ok(mut authorization) = authorization else { break };
            if authorization.refresh().await.is_err() {
                break;
            }
            let name = plain(&authorization.identifier().to_string());
            let problems = authorization.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
            let problems = problems.filter_map(|problem| problem.detail.as_deref());
            words.extend(problems.map(|detail| format!("{name} by {}: {}", challenge.as_str(), plain(detail))));
        }
        match (words.is_empty(), told) {
            (true, Some(told)) => told,
            (true, None) => {
                Trouble::refused(format!("the authority could not validate the names by {}", challenge.as_str()))
            }
            (false, _) => Trouble::refused(format!("the authority could not validate {}", words.join("; "))),
        }
    }

    /// When the authority suggests to renew a certificate (RFC 9773), in seconds since 1970, and how long that holds; `None` where it does
    /// not say.
    pub(super) async fn suggested(&self, issued: &Issued) -> Option<((i64, i64), Duration)> {
        let id = CertificateIdentifier::try_from(&issued.leaf).ok()?;
        // No account is made for a question.
        let account = self.kept_account().await?.ok()?;
        let (info, _) = account.renewal_info(&id).await.ok()?;
        let window = info.suggested_window;
        let pause = self.heard.retry_after().unwrap_or_default();
        Some(((window.start.unix_timestamp(), window.end.unix_timestamp()), pause))
    }

    /// The account: the one that is kept, or a new one.
    async fn account(&self) -> Result<Account, Trouble> {
        if let Some(account) = self.kept_account().await {
            return account;
        }
        let contact = self.contact();
        let new = NewAccount {
            contact: &contact.iter().map(String::as_str).collect::<Vec<_>>(),
            terms_of_service_agreed: self.acme.terms_agreed,
            only_return_existing: false,
        };
        let made = self.builder().create(&new, self.acme.directory.to_string(), None).await;
        let (account, credentials) = made.map_err(|error| self.trouble(error))?;
        self.keep(credentials)?;
        tracing::info!("acme: there is an account at {} now", self.acme.directory.host);
        Ok(account)
    }

    fn contact(&self) -> Vec<String> {
        self.acme.contact.iter().map(|address| format!("mailto:{address}")).collect()
    }

    async fn kept_account(&self) -> Option<Result<Account, Trouble>> {
        let kept: KeptAccount = serde_json::from_slice(&self.folder.account()?).ok()?;
        let has_moved = kept.contact != self.acme.contact;
        // They are written again where the contact has changed, and can't be cloned.
        let again = has_moved.then(|| serde_json::to_value(&kept.credentials).ok()).flatten();
        let account = match self.builder().from_credentials(kept.credentials).await {
            Ok(account) => account,
            Err(error) => return Some(Err(self.trouble(error))),
        };
        if let Some(credentials) = again.and_then(|again| serde_json::from_value(again).ok()) {
            let contact = self.contact();
            let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
            if let Err(error) = account.update_contacts(&contact).await {
                return Some(Err(self.trouble(error)));
            }
            if let Err(trouble) = self.keep(credentials) {
                return Some(Err(trouble));
            }
        }
        Some(Ok(account))
    }

    fn keep(&self, credentials: AccountCredentials) -> Result<(), Trouble> {
        let kept = KeptAccount { contact: self.acme.contact.clone(), credentials };
        let text = serde_json::to_string(&kept).map_err(|error| Trouble::refused(error.to_string()))?;
        self.folder
            .keep_account(&text)
            .map_err(|trouble| Trouble::refused(format!("the account can't be kept: {trouble}")))
    }

    fn builder(&self) -> instant_acme::AccountBuilder {
        Account::builder_with_http(Box::new(Client::new(Arc::clone(&self.tls), Arc::clone(&self.heard))))
    }

    fn trouble(&self, error: Error) -> Trouble {
        let is = |problem: &instant_acme::Problem, kind: &str| {
            problem.r#type.as_deref().and_then(|word| word.strip_prefix("urn:ietf:params:acme:error:")) == Some(kind)
        };
        let kind = match &error {
            _ if self.heard.was_unreachable() => TroubleKind::Unreachable,
            Error::Api(problem) if is(problem, "rateLimited") => TroubleKind::Limited(self.heard.retry_after()),
            Error::Api(problem) if is(problem, "accountDoesNotExist") => TroubleKind::NoAccount,
            _ => TroubleKind::Refused,
        };
        let text = match error {
            Error::Json(error) => format!("an answer of the authority is not usable: {error}"),
            error => error.to_string(),
        };
        Trouble { text: plain(&text), kind }
    }
}

fn kind_of(challenge: AcmeChallenge) -> ChallengeType {
    match challenge {
        AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        AcmeChallenge::Auto | AcmeChallenge::Http01 => ChallengeType::Http01,
    }
}
