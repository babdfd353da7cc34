//! The door: which requests are answered at all. GET only, read only; the page may load nothing
//! from outside (Content-Security-Policy); a request whose `Host` is a name that does not belong to
//! this machine is refused, for it comes from a foreign page whose name was pointed here (DNS
//! rebinding); a token must be known, on this machine too: other users of it may not see what
//! traces say.

use std::net::IpAddr;

use crate::query::Query;

/// What goes back to the browser.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
}

impl Answer {
    /// An answer with a body.
    pub fn ok(content_type: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status: 200, content_type, body: body.into(), headers: Vec::new() }
    }

    /// A file to be saved under this name.
    pub fn file(content_type: &'static str, name: &str, body: impl Into<Vec<u8>>) -> Answer {
        let mut answer = Answer::ok(content_type, body);
        answer.headers.push(("Content-Disposition", format!("attachment; filename=\"{name}\"")));
        answer
    }

    /// JSON.
    pub fn json(value: &serde_json::Value) -> Answer {
        Answer::ok("application/json", value.to_string())
    }

    /// A sentence about what is wrong. It never repeats what the request said.
    pub fn refused(status: u16, sentence: &str) -> Answer {
        Answer { status, content_type: "text/plain; charset=utf-8", body: format!("{sentence}\n").into_bytes(), headers: Vec::new() }
    }

    /// All headers.
    pub fn all_headers(&self) -> Vec<(&'static str, String)> {
        let always = [
            ("Content-Type", self.content_type),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ];
        always.into_iter().map(|(name, value)| (name, value.to_string())).chain(self.headers.clone()).collect()
    }
}

/// Nothing but this server; no script or style inside the page; nobody may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The cookie that keeps the token after the first request, with the port behind it: viewers of one
/// machine have one jar in the browser.
const COOKIE: &str = "weft_view";

/// The name of the cookie of the viewer that a browser calls so.
fn cookie_name(host: &str) -> String {
    match host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(port) => format!("{COOKIE}_{port}"),
        None => COOKIE.to_string(),
    }
}

/// A request as far as it matters.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// For example `GET`.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The `Host` header.
    pub host: Option<&'a str>,
    /// The `Cookie` header.
    pub cookie: Option<&'a str>,
}

/// Who may come in.
#[derive(Clone, Debug)]
pub struct Door {
    /// The server listens on loopback only.
    pub loopback: bool,
    /// This machine's name.
    pub hostname: String,
    /// What must be known.
    pub token: Option<String>,
}

/// The answer of `route` to a request that may come in.
pub fn answer(door: &Door, ask: &Ask<'_>, route: impl FnOnce(&str, &Query) -> Answer) -> Answer {
    if ask.method != "GET" {
        let mut answer = Answer::refused(405, "the viewer only reads: GET is the only method");
        answer.headers.push(("Allow", "GET".into()));
        return answer;
    }
    let Some(host) = ask.host.filter(|host| door.knows(host)) else {
        return Answer::refused(421, "this name does not belong to the viewer: use the address that weft view printed");
    };
    let cookie = cookie_name(host);
    let (path, query) = ask.target.split_once('?').unwrap_or((ask.target, ""));
    if let Some(token) = &door.token {
        let given = query.split('&').find_map(|pair| pair.strip_prefix("token="));
        if path == "/" && given.is_some_and(|given| same(given, token)) {
            // The token leaves the address, so that it is not in a copied link or in the history.
            let mut answer = Answer::refused(303, "see /");
            answer.headers.push(("Location", "/".into()));
            answer.headers.push(("Set-Cookie", format!("{cookie}={token}; HttpOnly; SameSite=Strict; Path=/")));
            return answer;
        }
        if !ask.cookie.is_some_and(|cookies| knows_token(cookies, &cookie, token)) {
            return Answer::refused(401, "the viewer asks for a token: open the address with ?token= that weft view printed");
        }
    }
    route(path, &Query::new(query))
}

impl Door {
    /// True if a browser may call this machine so. Addresses cannot be rebound, only names can.
    fn knows(&self, host: &str) -> bool {
        let parts = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']'),
            None => Some(host.split_at(host.find(':').unwrap_or(host.len()))),
        };
        let Some((name, port)) = parts else { return false };
        let is_number = |port: &str| port.parse::<u16>().is_ok();
        if !port.is_empty() && port.strip_prefix(':').is_none_or(|port| !is_number(port)) {
            return false;
        }
        match name.parse::<IpAddr>() {
            Ok(address) => !self.loopback || address.is_loopback(),
            Err(_) => name.eq_ignore_ascii_case("localhost") || (!self.loopback && name.eq_ignore_ascii_case(&self.hostname)),
        }
    }
}

fn knows_token(cookies: &str, wanted: &str, token: &str) -> bool {
    cookies.split(';').filter_map(|cookie| cookie.trim().split_once('=')).any(|(name, value)| name == wanted && same(value, token))
}

/// Compares without telling by its time how much was right.
fn same(given: &str, token: &str) -> bool {
    given.len() == token.len() && given.bytes().zip(token.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(loopback: bool, token: Option<&str>) -> Door {
        Door { loopback, hostname: "boron".into(), token: token.map(str::to_string) }
    }

    fn get<'a>(target: &'a str, host: &'a str) -> Ask<'a> {
        Ask { method: "GET", target, host: Some(host), cookie: None }
    }

    fn page(path: &str, _: &Query) -> Answer {
        match path {
            "/" | "/api/state" | "/api/run" => Answer::ok("text/plain", path),
            _ => Answer::refused(404, "there is no such page"),
        }
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let status = |door: &Door, host: Option<&str>| answer(door, &Ask { host, ..get("/api/state", "") }, page).status;
        let local = door(true, None);
        for host in ["localhost", "LocalHost:7070", "127.0.0.1:7070", "127.8.8.8", "[::1]:7070"] {
            assert_eq!(status(&local, Some(host)), 200, "{host}");
        }
        assert_eq!(status(&local, None), 421);
        for host in [
            "",
            "evil.example",
            "localhost.evil.example:80",
            "boron:7070",
            "192.168.1.5",
            "[::1",
            "[::1]evil",
            "127.0.0.1:7070@evil.example",
            "localhost:http",
            "localhost:70700",
        ] {
            assert_eq!(status(&local, Some(host)), 421, "{host}");
        }
        let open = door(false, None);
        for (host, expected) in [("192.168.1.5:70", 200), ("boron:70", 200), ("evil.example", 421), ("[fe80::1]:70", 200)] {
            assert_eq!(status(&open, Some(host)), expected, "{host}");
        }
    }

    #[test]
    fn only_get_is_allowed() {
        for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"] {
            let answer = answer(&door(true, None), &Ask { method, ..get("/", "localhost") }, page);
            assert_eq!(answer.status, 405, "{method}");
            assert!(answer.headers.contains(&("Allow", "GET".into())));
        }
    }

    #[test]
    fn a_token_opens_once_and_a_cookie_from_then_on() {
        let door = door(false, Some("0123456789abcdef"));
        let with = |target: &'static str, cookie: Option<&'static str>| answer(&door, &Ask { cookie, ..get(target, "10.0.0.1") }, page);
        assert_eq!(with("/", None).status, 401);
        assert_eq!(with("/?token=0123456789abcdee", None).status, 401);
        assert_eq!(with("/?token=", None).status, 401);
        assert_eq!(with("/api/run?token=0123456789abcdef", None).status, 401, "only the page takes the token from the address");
        let first = with("/?token=0123456789abcdef", None);
        assert_eq!(first.status, 303);
        let cookie = &first.headers.iter().find(|(name, _)| *name == "Set-Cookie").unwrap().1;
        assert!(cookie.starts_with("weft_view=0123456789abcdef; HttpOnly; SameSite=Strict"));
        assert_eq!(with("/", Some("other=1; weft_view=0123456789abcdef")).status, 200);
        assert_eq!(with("/", Some("weft_view=0123456789abcdeX")).status, 401);
        let at = |cookie| answer(&door, &Ask { cookie: Some(cookie), ..get("/", "10.0.0.1:7070") }, page).status;
        assert_eq!([at("weft_view_7070=0123456789abcdef"), at("weft_view_7071=0123456789abcdef")], [200, 401]);
    }

    #[test]
    fn every_answer_forbids_requests_to_the_outside() {
        for target in ["/", "/timeline.js", "/api/run", "/nothing"] {
            let headers = answer(&door(true, None), &get(target, "localhost"), page).all_headers();
            let policy = &headers.iter().find(|(name, _)| *name == "Content-Security-Policy").unwrap().1;
            assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"), "{policy}");
            assert!(headers.contains(&("X-Content-Type-Options", "nosniff".into())));
        }
    }
}
