//! Ids of `/check/settle`, `/check/renew` and `/check/done` from callers that may send anything.
//!
//! Laws, over random contents and over every small change of an id: an id opens to the content that
//! it was made of, under its own name and secret only; nothing else opens; and a body that is wrong
//! is answered in words, from memory that its length bounds.

use serde_json::{Value, json};
use tollgate_core::Timestamp;
use tollgate_service::in_flight::{self, InFlight};
use tollgate_service::settle::{self, NamedReceipt, Receipts, Sealer};
use tollgate_test_support::Random;

const ROUNDS: usize = if cfg!(debug_assertions) { 300 } else { 5_000 };
const NOW: Timestamp = Timestamp::from_millis(1_780_000_000_000);

fn sealer(secret: &str, deployment: &str) -> Sealer {
    Sealer::new(secret.as_bytes(), deployment.as_bytes()).unwrap()
}

/// Up to three counts, so few and short that contents often differ in one byte alone.
fn counts(random: &mut Random) -> Vec<NamedReceipt> {
    let receipt = |random: &mut Random| {
        let len = *random.pick(&[0, 1, 2, 26, 31, 32, 33, 70]);
        (0..len).map(|_| *random.pick(&[0, 1, 255])).collect()
    };
    (0..random.index(4)).map(|_| ([*random.pick(&[0, 1]); 32], receipt(random))).collect()
}

fn receipts(random: &mut Random) -> Receipts {
    let charged_at = Timestamp::from_nanos(NOW.as_nanos() - random.below(3));
    Receipts { number: random.below(3), charged_at, counts: counts(random) }
}

/// Texts that differ from `id` in one place.
fn changes(id: &str, random: &mut Random) -> Vec<String> {
    let characters: Vec<char> = id.chars().collect();
    let place = random.index(characters.len());
    let with = |change: &dyn Fn(&mut Vec<char>)| {
        let mut changed = characters.clone();
        change(&mut changed);
        changed.into_iter().collect::<String>()
    };
    let other = *random.pick(&['A', 'B', '_', '-', '/', '+', '=', '\u{e4}', '\0', ' ']);
    let mut all = vec![
        with(&|it| it[place] = other),
        with(&|it| it.insert(place, other)),
        with(&|it| it.push(other)),
        with(&|it| _ = it.remove(place)),
        with(&|it| it.truncate(place)),
        with(&|it| it.rotate_left(1)),
        id.to_ascii_lowercase(),
        id.repeat(2),
        String::new(),
    ];
    // The bits of the last character that belong to no byte.
    let last = |character: char| with(&|it| *it.last_mut().unwrap() = character);
    let alphabet = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['-', '_']);
    all.extend(alphabet.map(last));
    all.retain(|changed| changed != id);
    all
}

// Guards: an id that a caller made of another one, and that settles or ends the request of another
// caller; an id of one kind in the place of the other; and one of another deployment.
#[test]
fn an_id_opens_to_its_content_and_no_other_text_opens() {
    let mut random = Random::new(0x1d5);
    let ours = sealer("secret", "a");
    let others = [sealer("secret", "b"), sealer("secret2", "a"), sealer("secreta", "")];
    let mut made: Vec<(String, Receipts)> = Vec::new();
    for _ in 0..ROUNDS {
        let content = receipts(&mut random);
        let id = ours.id(&content);
        assert_eq!(ours.open(&id).as_ref(), Some(&content), "{id}");
        assert!(others.iter().all(|it| it.open(&id).is_none() && it.id(&content) != id));
        assert_eq!(InFlight::open(&ours, &id), None, "it settles a cost");
        for (other, of) in made.iter().rev().take(50) {
            assert_eq!(*other == id, *of == content, "{content:?} and {of:?}");
        }
        for changed in changes(&id, &mut random) {
            assert_eq!(ours.open(&changed), None, "{changed:?} of {id:?}");
        }
        let in_flight = InFlight { number: content.number, counts: content.counts.clone() };
        let ends = in_flight.seal(&ours).id;
        assert_eq!(InFlight::open(&ours, &ends).as_ref(), Some(&in_flight), "{ends}");
        assert_eq!(ours.open(&ends), None, "it ends a request");
        for changed in changes(&ends, &mut random) {
            assert_eq!(InFlight::open(&ours, &changed), None, "{changed:?} of {ends:?}");
        }
        made.push((id, content));
    }
}

/// A body of a caller: an id in the right place or not, of any type, whole or cut.
fn body(id: &str, random: &mut Random) -> Vec<u8> {
    let odd = [
        json!(null),
        json!(1),
        json!(""),
        json!("\u{0}\u{202e}\u{1b}[2J"),
        json!([id]),
        json!({"id": id}),
        json!("A".repeat(100_000)),
    ];
    let id = if random.chance(50) { json!(id) } else { random.pick(&odd).clone() };
    let cost = random.pick(&[json!(0), json!(7), json!(-1), json!(1e30), json!("7")]).clone();
    let mut all = vec![
        json!({"id": id}),
        json!({"id": id, "cost": cost}),
        json!({"id": id, "cost": cost, "x": 1}),
        json!({"requests": [{"id": id}, {"id": "AA"}, id]}),
        json!({"requests": vec![json!({"id": "AA"}); 2_000]}),
        json!([id]),
        Value::Null,
    ];
    let mut text = all.swap_remove(random.index(all.len())).to_string().into_bytes();
    if random.chance(30) {
        text.truncate(random.index(text.len()));
    }
    if random.chance(20) && !text.is_empty() {
        let place = random.index(text.len());
        text[place] = *random.pick(&[0, b'"', b'{', 0xff, b'\\']);
    }
    text
}

// Guards: a panic by a body that a caller makes, and a response that repeats control characters of
// it or grows with it.
#[test]
fn a_wrong_body_is_answered_in_words() {
    let mut random = Random::new(0xb0d1);
    let ours = sealer("secret", "a");
    let (mut read, mut refused) = (0, 0);
    for _ in 0..ROUNDS {
        let content = receipts(&mut random);
        let ids = [
            ours.id(&content),
            InFlight { number: content.number, counts: content.counts.clone() }.seal(&ours).id,
        ];
        let id = random.pick::<String>(&ids).clone();
        let body = body(&id, &mut random);
        let settled = settle::request(Some(&ours), &body, NOW);
        let ended = in_flight::requests(Some(&ours), &body, 1_000);
        let both = [settled.map(|_| ()), ended.map(|_| ())];
        for answer in both {
            let Err(answer) = answer else {
                read += 1;
                continue;
            };
            refused += 1;
            let said: Value = serde_json::from_str(&answer.body).expect("JSON");
            assert!(answer.status == 400, "{answer:?}");
            assert!(said["errors"].as_array().is_some_and(|all| !all.is_empty()), "{said}");
            assert!(answer.body.len() < 4_096, "{} bytes", answer.body.len());
            let is_shown = |it: char| !it.is_control() && it != '\u{202e}';
            assert!(answer.body.chars().all(is_shown), "{}", answer.body);
        }
    }
    assert!(read > ROUNDS / 10 && refused > ROUNDS / 2, "{read} read, {refused} refused");
}
