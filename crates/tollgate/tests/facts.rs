//! A service can give every fact of a request with the names of this crate alone.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use tollgate::{
    CertificateField, CloudflareField, Disposition, Entry, Facts, Now, Plan, RequestedLimit, Span,
    Timestamp,
};

struct Everything;

impl Facts for Everything {
    fn method(&self) -> Cow<'_, [u8]> {
        b"POST"[..].into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        b"/a?b=c"[..].into()
    }
    fn host(&self) -> Cow<'_, [u8]> {
        b"example.com"[..].into()
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "x-user").then(|| b"ann"[..].into())
    }
    fn peer(&self) -> Option<IpAddr> {
        Some(Ipv4Addr::new(192, 0, 2, 1).into())
    }
    fn route(&self) -> Option<Cow<'_, [u8]>> {
        Some(b"main"[..].into())
    }
    fn country(&self) -> Option<Cow<'_, [u8]>> {
        Some(b"NO"[..].into())
    }
    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        Some(b"64496"[..].into())
    }
    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "sub").then(|| b"ann"[..].into())
    }
    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        (path == ["filter", "plan"]).then(|| b"gold"[..].into())
    }
    fn client_certificate(&self, field: CertificateField) -> Option<Cow<'_, [u8]>> {
        (field == CertificateField::Subject).then(|| b"CN=ann"[..].into())
    }
    fn cloudflare(&self, field: CloudflareField) -> Option<Cow<'_, [u8]>> {
        (field == CloudflareField::Colo).then(|| b"OSL"[..].into())
    }
    fn domain(&self) -> Option<Cow<'_, [u8]>> {
        Some(b"web"[..].into())
    }
    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        (index == 0).then_some(Entry { key: b"user"[..].into(), value: b"ann"[..].into() })
    }
    fn beside(&self, _: usize, _: usize) -> Option<Entry<'_>> {
        None
    }
    fn limit(&self) -> Option<RequestedLimit> {
        Some(RequestedLimit { units: 7, window: Span::from_secs(3_600) })
    }
    fn hits(&self) -> Option<u64> {
        Some(2)
    }
    fn is_to_be_settled(&self) -> bool {
        false
    }
}

#[test]
fn every_fact_can_be_given_and_a_calendar_reads_the_wall_clock() {
    let policy = tollgate::compile(
        r#"{"version": 1, "rules": [
            {"name": "each", "key": [{"metadata": ["filter", "plan"]}, {"client_certificate": "subject"},
                {"descriptor": "user"}, "country", {"jwt_claim": "sub"}],
             "when": {"domain": "web"},
             "quotas": [{"name": "each", "limit": 3, "window": "1h", "algorithm": "fixed-window", "align": "calendar"},
                        {"name": "own", "limit": 1, "window": "1h", "algorithm": "fixed-window",
                         "limit_from": {"descriptor": true, "max": 9}}]}]}"#,
    );
    let policy = policy.unwrap_or_else(|problems| panic!("{problems}"));
    let mut plan = Plan::new();
    policy.plan(&Everything, &mut plan);
    plan.each_partition(|partition| partition.load(&policy, None));
    let wall = Timestamp::from_millis(3_600_005);
    plan.decide(&policy, Now::new(Timestamp::from_millis(5), Some(wall)));
    let outcome = plan.outcome(&policy);
    assert_eq!(outcome.disposition(), Disposition::Allow);
    let mut fields = Vec::new();
    outcome.headers(&mut |name, value| fields.push(format!("{name}: {value}")));
    assert_eq!(
        fields,
        [
            r#"ratelimit-policy: "each";q=3;w=3600, "own";q=7;w=3600"#,
            r#"ratelimit: "each";r=1;t=3599, "own";r=5;t=3599"#,
        ]
    );
}
