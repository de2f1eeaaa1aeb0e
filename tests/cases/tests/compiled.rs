//! The law of compiled policies: a policy that was written and read gives the same responses to
//! every event of every case as the one compiled from the document, and stores the same bytes.

use tollgate_cases::{Case, HASH_KEY, Reference, cases, numbers};
use tollgate_policy::{Policy, Surface};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_policy_that_was_written_and_read_decides_alike() {
    let mut events = 0;
    for number in numbers(cases()) {
        let case = Case::new(number);
        for surface in Surface::ALL {
            let Ok(policy) = tollgate_language::compile(&case.policy.to_string(), surface) else {
                continue;
            };
            let (mut bytes, mut again) = (Vec::new(), Vec::new());
            policy.write_compiled(&mut bytes);
            let read = Policy::read_compiled(&bytes, surface)
                .unwrap_or_else(|why| panic!("case {number} {surface:?} {why}: {}", case.policy));
            read.write_compiled(&mut again);
            assert!(bytes == again, "case {number} is written otherwise");
            let mut compiled = Reference::new(&case, surface, HASH_KEY);
            let mut reread = Reference::with(&case, read, HASH_KEY);
            for (index, expected) in compiled.by_ref().enumerate() {
                let answered = reread.next().expect("as many answers");
                assert_eq!(
                    format!("{expected:?}"),
                    format!("{answered:?}"),
                    "case {number}, event {index}"
                );
                events += 1;
            }
            assert_eq!(compiled.store(), reread.store(), "case {number}");
        }
    }
    assert!(events > 1000 || cases() < 10, "{events}");
}
