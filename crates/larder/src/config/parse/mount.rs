//! Reads the tables `[[python]]`, and finds the processes that run applications and hooks.

use super::Parser;
use crate::config::application::Application;
use crate::config::table::PYTHON;
use crate::config::url::SiteOrigin;
use crate::config::{HostHeader, Mount, Python, Site, Sites, url};
use larder_wire::{Host, Url};
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

impl Parser {
    pub(super) fn pythons(&mut self, value: &Spanned<DeValue<'_>>) {
        self.said_in_file("python", value);
        for (span, table) in self.tables("python", value) {
            let mut python = Python::default();
            let missing = self.entry("python", PYTHON, &span, table, &mut python, &[]);
            python.place = self.place(&span);
            if self.loaded.config.pythons.iter().any(|other| other.name == python.name) && !missing {
                self.problem(span, format!("there is a [[python]] {} already", python.name), None);
            }
            self.loaded.config.pythons.push(Arc::new(python));
        }
    }

    /// Finds the processes that run the applications which origins name, and hooks.
    pub(super) fn mounts(&mut self) {
        let mut sites = self.loaded.config.sites.all().cloned().collect::<Vec<_>>();
        let mut mounts = Vec::new();
        for site in &mut sites {
            if self.faulty.iter().any(|(.., place)| place.0 == site.place.0) {
                continue;
            }
            let place = site.place.to_string();
            if let Some(application) = Application::parse(&url::show(&site.origin)) {
                if let Some(url) = self.mount(application, &site.python, ("site", &place), &mut mounts) {
                    site.origin = Arc::new(SiteOrigin::new(url));
                }
            } else if !site.python.is_empty() && site.hooks.is_empty() {
                let message = format!("{place}: `python` is for an origin that is an application, and for hooks");
                self.conflict("site", &message, Some("write origin = \"wsgi:package.module:application\""));
            }
            for route in &mut site.routes {
                if let Some(application) = Application::parse(&url::show(&route.origin))
                    && let Some(url) = self.mount(application, &site.python, ("site", &place), &mut mounts)
                {
                    route.origin = Arc::new(SiteOrigin::new(url));
                }
                if is_nameless(&route.origin.host) && site.host_header == HostHeader::Origin {
                    let message = format!("{place}: host = \"origin\" needs routes whose origins have names");
                    let hint = "a socket and an application get the `Host` that the client asked for";
                    self.conflict("site", &message, Some(hint));
                }
            }
            if !site.hooks.is_empty() {
                let hooks = Application::hooks(&site.hooks);
                let url = self.mount(hooks, &site.python, ("site", &place), &mut mounts);
                site.hooked_by = url.map(|url| url.host);
                add_routes(site, &mut mounts);
            }
            if let Some(http2) = site.http2 {
                self.http2_of_site(site, http2);
            }
            self.check_passed_site(site);
            if let Some(version) = site.proxy_protocol {
                self.proxy_protocol_of_site(site, version);
            }
            if is_nameless(&site.origin.host) && site.host_header == HostHeader::Origin {
                let message = format!("{place}: host = \"origin\" needs an origin that has a name");
                let hint = "a socket and an application get the `Host` that the client asked for";
                self.conflict("site", &message, Some(hint));
            }
        }
        self.forward_hooks(&mut mounts);
        self.forward_parents();
        let mut listens = std::mem::take(&mut self.loaded.config.listens);
        for listen in &mut listens {
            let application = listen.origin.as_ref().and_then(|origin| Application::parse(&url::show(origin)));
            let url = application.and_then(|it| self.mount(it, "", ("listen", "listen"), &mut mounts));
            if let Some(url) = url {
                listen.origin = Some(Arc::new(SiteOrigin::new(url)));
            }
        }
        let config = &mut self.loaded.config;
        config.tells_origins_of_clients = sites.iter().any(|site| site.proxy_protocol.is_some())
            || config.origins.iter().flat_map(|group| &group.members).any(|member| member.proxy_protocol.is_some());
        (config.listens, config.mounts) = (listens, mounts);
        config.sites = Sites::new(sites);
    }

    /// The origin whose name an application has in its surroundings; `None` where these can't be found.
    pub(super) fn mount(
        &mut self,
        application: Application,
        python: &str,
        (table, place): (&str, &str),
        mounts: &mut Vec<Arc<Mount>>,
    ) -> Option<Url> {
        let pythons = &self.loaded.config.pythons;
        let (surroundings, label) = match (pythons.iter().find(|each| each.name == python), pythons.as_slice()) {
            (Some(found), _) => (Arc::clone(found), format!("#{}", found.name)),
            (None, [only]) if python.is_empty() => (Arc::clone(only), format!("#{}", only.name)),
            (None, []) if python.is_empty() => (Arc::new(Python::default()), String::new()),
            _ => {
                let names: Vec<&str> = pythons.iter().map(|each| each.name.as_str()).collect();
                let message = match python {
                    "" => format!("{place}: several [[python]] could run {}", application.name),
                    name => format!("{place}: there is no [[python]] {name}"),
                };
                let hint = format!("write `python = \"NAME\"` beside it; there are: {}", names.join(", "));
                self.conflict(table, &message, Some(&hint));
                return None;
            }
        };
        let url = url::local(&format!("{}{label}", application.name));
        if !mounts.iter().any(|mount| mount.host == url.host) {
            let host = url.host.clone();
            mounts.push(Arc::new(Mount { host, application, python: surroundings, routes: Vec::new() }));
        }
        Some(url)
    }
}

/// Whether the host of an origin stands for a socket or an application.
pub(super) fn is_nameless(host: &Host) -> bool {
    host.is_local() && url::group_name(host).is_none()
}

/// Tells the processes of a site's hooks which routes there are.
fn add_routes(site: &Site, mounts: &mut [Arc<Mount>]) {
    let mount = mounts.iter_mut().find(|mount| Some(&mount.host) == site.hooked_by.as_ref());
    let Some(mount) = mount.map(Arc::make_mut) else { return };
    for route in &site.routes {
        if !mount.routes.contains(&route.name) {
            mount.routes.push(route.name.clone());
        }
    }
}
