//! Modules made from the shipped one: one that has other code and does the same, and one that can
//! be made to trap, which the shipped one cannot.
//!
//! Invariant: parts that are not documented as changed are copied byte for byte.

use std::fs;

use crate::envoy_server::filter_wasm;

/// A request with this many header lines traps the module of [`that_traps`].
pub const FATAL_HEADERS: u8 = 60;

const CUSTOM: u8 = 0;
const IMPORTS: u8 = 2;
const FUNCTIONS: u8 = 3;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;

/// Magic number and version.
const HEAD: usize = 8;

/// Other code by its bytes: one more custom section.
pub fn that_is_other_code() -> Vec<u8> {
    let mut module = fs::read(filter_wasm()).expect("the filter is readable");
    push_section(&mut module, CUSTOM, b"\x05other");
    module
}

/// Decides like the shipped one, then traps if the request has [`FATAL_HEADERS`] lines: its charge
/// is stored, and the machine is gone.
pub fn that_traps() -> Vec<u8> {
    let shipped = fs::read(filter_wasm()).expect("the filter is readable");
    let sections = sections(&shipped);
    let section = |wanted: u8| {
        let found = sections.iter().find(|(id, _)| *id == wanted);
        found.unwrap_or_else(|| panic!("no section {wanted}")).1
    };
    let imported = Reader(section(IMPORTS)).count_imports();
    let types = Reader(section(FUNCTIONS)).numbers();
    let added = imported + u32::try_from(types.len()).expect("few functions");
    let (exports, decides) =
        Reader(section(EXPORTS)).with_export("proxy_on_request_headers", added);
    let its_type = types[usize::try_from(decides - imported).expect("a small number")];
    let mut module = shipped[..HEAD].to_vec();
    for (id, bytes) in &sections {
        match *id {
            FUNCTIONS => push_section(&mut module, *id, &one_more(bytes, &leb(its_type))),
            EXPORTS => push_section(&mut module, *id, &exports),
            CODE => {
                let body = decide_then_trap(decides);
                let len = leb(u32::try_from(body.len()).expect("short"));
                push_section(&mut module, *id, &one_more(bytes, &[len, body].concat()));
            }
            _ => push_section(&mut module, *id, bytes),
        }
    }
    module
}

/// `f(context, headers, end) { let flow = decides(...); if headers >= FATAL { trap } flow }`
fn decide_then_trap(decides: u32) -> Vec<u8> {
    const NO_LOCALS: u8 = 0;
    let get = |local: u8| [0x20, local];
    let call = [&[0x10][..], &leb(decides)].concat();
    let is_fatal = [&get(1)[..], &[0x41, FATAL_HEADERS, 0x4f]].concat();
    let trap_if = [0x04, 0x40, 0x00, 0x0b];
    let end = [0x0b];
    [&[NO_LOCALS][..], &get(0), &get(1), &get(2), &call, &is_fatal, &trap_if, &end].concat()
}

fn sections(module: &[u8]) -> Vec<(u8, &[u8])> {
    let mut reader = Reader(&module[HEAD..]);
    let mut sections = vec![];
    while !reader.0.is_empty() {
        let id = reader.byte();
        let len = reader.number();
        sections.push((id, reader.take(len)));
    }
    sections
}

fn push_section(module: &mut Vec<u8>, id: u8, bytes: &[u8]) {
    module.push(id);
    module.extend(leb(u32::try_from(bytes.len()).expect("short")));
    module.extend(bytes);
}

/// A vector with one more element.
fn one_more(vector: &[u8], element: &[u8]) -> Vec<u8> {
    let mut reader = Reader(vector);
    let count = reader.number();
    [&leb(count + 1)[..], reader.0, element].concat()
}

fn leb(mut number: u32) -> Vec<u8> {
    let mut bytes = vec![];
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: u32) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(usize::try_from(len).expect("short"));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn number(&mut self) -> u32 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u32::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    fn name(&mut self) -> &'a [u8] {
        let len = self.number();
        self.take(len)
    }

    fn numbers(mut self) -> Vec<u32> {
        (0..self.number()).map(|_| self.number()).collect()
    }

    /// The number of imported functions; nothing else is imported.
    fn count_imports(mut self) -> u32 {
        let count = self.number();
        for _ in 0..count {
            self.name();
            self.name();
            assert_eq!(self.byte(), 0, "the filter imports functions alone");
            self.number();
        }
        count
    }

    /// The exports, with the one of this name pointing to another function; and the function it
    /// pointed to before.
    fn with_export(mut self, wanted: &str, function: u32) -> (Vec<u8>, u32) {
        let count = self.number();
        let (mut exports, mut was) = (leb(count), None);
        for _ in 0..count {
            let (name, kind, index) = (self.name(), self.byte(), self.number());
            let is_it = name == wanted.as_bytes();
            was = if is_it { Some(index) } else { was };
            exports.extend(leb(u32::try_from(name.len()).expect("short")));
            exports.extend(name);
            exports.push(kind);
            exports.extend(leb(if is_it { function } else { index }));
        }
        (exports, was.unwrap_or_else(|| panic!("no export {wanted}")))
    }
}
