//! The client that a policy finds, for any headers.
//!
//! A corpus file is: a line whose first byte chooses the settings, a line with the peer's address,
//! a line that an attacker writes in front of everything, and the lines of the header. Invariant
//! checked: the client is the peer or is written in the headers; an untrusted peer counts only as
//! itself; when texts of two strangers on the left of closed quotes make no difference, no other
//! text there does; and an entry that one more proxy appends on the right determines the client
//! exactly as far as that proxy is trusted. The same lines are a header from which a key is taken,
//! with the laws of `values`.

use std::cell::OnceCell;
use std::net::IpAddr;

use tollgate_policy::{Policy, Surface};

use super::request::{Request, address, split_once};
use super::values;

/// The `client_ip` of a policy, the header it reads, and the trusted proxies.
struct Settings {
    client_ip: &'static str,
    header: &'static str,
    trust: Trust,
}

/// The kind of trust.
enum Trust {
    Nobody,
    /// 10.0.0.0/8 and 2001:db8:1::/48.
    Proxies,
    Hops(usize),
}

/// Outside of every trusted network.
const STRANGERS: [&str; 2] = ["203.0.113.253", "2001:db8:ffff::253"];
/// An address that is trusted by the settings that trust any.
const TRUSTED: &str = "10.9.8.7";
/// More entries than are walked: a walk that passes the given entries reaches these.
const MORE_THAN_WALKED: usize = 70;

const SETTINGS: [Settings; 8] = [
    Settings {
        client_ip: r#"{"source": "x-forwarded-for", "trusted_proxies": ["10.0.0.0/8", "2001:db8:1::/48"]}"#,
        header: "x-forwarded-for",
        trust: Trust::Proxies,
    },
    Settings {
        client_ip: r#"{"source": "forwarded", "trusted_proxies": ["10.0.0.0/8", "2001:db8:1::/48"]}"#,
        header: "forwarded",
        trust: Trust::Proxies,
    },
    Settings {
        client_ip: r#"{"source": "x-forwarded-for", "trusted_hops": 1}"#,
        header: "x-forwarded-for",
        trust: Trust::Hops(1),
    },
    Settings {
        client_ip: r#"{"source": "x-forwarded-for", "trusted_hops": 3}"#,
        header: "x-forwarded-for",
        trust: Trust::Hops(3),
    },
    Settings {
        client_ip: r#"{"source": "forwarded", "trusted_hops": 16}"#,
        header: "forwarded",
        trust: Trust::Hops(16),
    },
    Settings {
        client_ip: r#"{"source": {"header": "x-real-ip"}, "trusted_proxies": ["10.0.0.0/8", "2001:db8:1::/48"]}"#,
        header: "x-real-ip",
        trust: Trust::Proxies,
    },
    Settings {
        client_ip: r#"{"source": "x-forwarded-for"}"#,
        header: "x-forwarded-for",
        trust: Trust::Nobody,
    },
    Settings { client_ip: "{}", header: "x-forwarded-for", trust: Trust::Nobody },
];

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10,
        IpAddr::V6(v6) => v6.segments()[..3] == [0x2001, 0xdb8, 1],
    }
}

/// Finds the client, and checks who could have changed it.
pub fn check(bytes: &[u8]) {
    let (first, rest) = split_once(bytes, b'\n').unwrap_or((bytes, b""));
    let (peer, rest) = split_once(rest, b'\n').unwrap_or((rest, b""));
    let (attack, lines) = split_once(rest, b'\n').unwrap_or((b"", rest));
    let which = usize::from(first.first().copied().unwrap_or(0)) % SETTINGS.len();
    let (settings, peer) = (&SETTINGS[which], address(peer));
    let list = lines.split(|b| *b == b'\n').collect::<Vec<_>>().join(&b", "[..]);
    values::check(&list, attack);
    let find = |list: &[u8]| client(which, &Request::from_peer(peer, settings.header, list));

    let found = find(&list);
    let peer = peer.map(|peer| peer.to_canonical());
    assert!(found == peer || found.is_some_and(|ip| stands_in(&list, ip)), "{found:?} is nowhere");
    assert_eq!(found.map(|ip| ip.to_canonical()), found, "two forms of one client");
    let is_believed = match settings.trust {
        Trust::Nobody => false,
        Trust::Proxies => peer.is_none_or(is_private),
        Trust::Hops(_) => true,
    };
    if !is_believed {
        assert_eq!(found, peer, "believed from anybody");
    }
    if settings.header == "x-real-ip" {
        return; // contains one address, and no list to which an attacker could add in front
    }
    let [one, other] = STRANGERS.map(|stranger| {
        let mut text = settings.entry(stranger).repeat(MORE_THAN_WALKED).into_bytes();
        text.extend_from_slice(&list);
        find(&text)
    });
    if one == other && are_quotes_closed(&list) {
        let attacked = [attack, b",", &list].concat();
        assert_eq!(find(&attacked), one, "an entry that nobody vouches for is believed");
        assert_eq!(found, one);
    }
    if is_believed {
        appended(which, peer, &list);
    }
}

/// False for lists that no proxy writes: with a quote that ends a text which began before the list.
fn are_quotes_closed(list: &[u8]) -> bool {
    let is_escaped =
        |i: usize| list[..i].iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1;
    let quotes = (0..list.len()).filter(|i| list[*i] == b'"' && !is_escaped(*i));
    quotes.count() % 2 == 0
}

/// Entries that a trusted peer appends: garbage, a stranger, and a proxy that is also trusted.
fn appended(which: usize, peer: Option<IpAddr>, list: &[u8]) {
    let settings = &SETTINGS[which];
    let find = |peer, list: &[u8]| client(which, &Request::from_peer(peer, settings.header, list));
    let with = |last: &[&str]| {
        let entries = last.iter().map(|node| settings.entry(node)).collect::<String>();
        [list, b", ", entries.as_bytes()].concat()
    };
    assert_eq!(find(peer, &with(&["unknown"])), peer, "garbage is stepped past");
    let [stranger, other] = STRANGERS;
    let hops = if let Trust::Hops(hops) = settings.trust { hops } else { 1 };
    let mut last = vec![other; hops];
    last[0] = stranger;
    assert_eq!(find(peer, &with(&last)), address(stranger.as_bytes()), "not the last stranger");
    let entries = list.iter().filter(|b| **b == b',').count();
    if matches!(settings.trust, Trust::Proxies) && entries < MORE_THAN_WALKED / 2 {
        let proxy = address(TRUSTED.as_bytes());
        assert_eq!(find(peer, &with(&[TRUSTED])), find(proxy, list), "as if the proxy had called");
    }
}

impl Settings {
    /// One entry of the list, with the comma after it.
    fn entry(&self, node: &str) -> String {
        match self.header {
            "forwarded" if node.contains(':') => format!("for=\"[{node}]\", "),
            "forwarded" => format!("for={node}, "),
            _ => format!("{node}, "),
        }
    }
}

/// The client that the policy with these settings finds.
fn client(which: usize, request: &Request<'_>) -> Option<IpAddr> {
    thread_local! {
        static POLICIES: OnceCell<Vec<Policy>> = const { OnceCell::new() };
    }
    let compile = |settings: &Settings| {
        let document =
            format!(r#"{{"version": 1, "client_ip": {}, "rules": []}}"#, settings.client_ip);
        tollgate_language::compile(&document, Surface::Envoy).expect("a policy")
    };
    POLICIES.with(|policies| {
        let policies = policies.get_or_init(|| SETTINGS.iter().map(compile).collect());
        policies[which].explain().client_address(request)
    })
}

/// True when `client` is written somewhere in `list`, with or without port, brackets, quotes or
/// zone.
fn stands_in(list: &[u8], client: IpAddr) -> bool {
    let is_around = |b: &u8| b",;=\"[]% \t\x0c\r\n".contains(b);
    list.split(is_around).any(|token| {
        let before_port = split_once(token, b':').map_or(token, |(host, _)| host);
        let written = [address(token), address(before_port)];
        written.iter().flatten().any(|ip| ip.to_canonical() == client)
    })
}
