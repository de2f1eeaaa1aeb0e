//! The policy over HTTP: every answer that there is, and what stands in the store afterwards.

mod common;

use common::*;

fn shown(answer: &tollgate_service::Answer) -> String {
    let mut fields: Vec<&str> = answer.fields.lines().lines().collect();
    fields.retain(|line| !line.starts_with("cache-control") && !line.starts_with("etag"));
    format!("{} [{}] {}", answer.status, fields.join(", "), answer.body)
}

#[test]
fn a_policy_is_put_read_rolled_back_and_given_back() {
    let it = Deployment::new();
    let read = it.ask(&Ask::new("GET", "admin/policy"));
    assert_eq!((read.status, read.body.as_ref()), (200, DEPLOYED));
    assert_eq!(read.fields.get("tollgate-policy-source"), Some("deployed"));
    let put = it.put(&policy(20));
    println!("{}", shown(&put));
    assert_eq!(put.status, 200);
    let again = it.ask(&Ask::new("GET", "admin/policy"));
    assert_eq!(again.body.as_ref(), policy(20));
    assert_eq!(again.fields.get("etag"), put.fields.get("etag"));
    let back = Ask::new("POST", "admin/policy/rollback").with("if-match", "*").json("{\"to\":1}");
    let back = it.ask(&back);
    println!("{}", shown(&back));
    assert_eq!(back.status, 200);
    let deleted = it.ask(&Ask::new("DELETE", "admin/policy").with("if-match", &it.tag()));
    println!("{}", shown(&deleted));
    let history = it.ask(&Ask::new("GET", "admin/policy/history"));
    println!("{}", shown(&history));
    assert_eq!(history.status, 200);
}
