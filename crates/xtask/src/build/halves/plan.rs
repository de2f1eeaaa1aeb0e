//! What both halves are written by: who is called across the cut, and by which name or place.
//!
//! Invariant: tables, memories, globals and tags have the same indices in both halves, because the
//! second imports all of them in their order; functions alone are counted anew. The types are those
//! of the whole, and one more.

use super::{
    choice::Choice,
    module::{Whole, said},
};
use std::collections::{BTreeMap, BTreeSet};
use wasm_encoder::{
    CodeSection, ConstExpr, DataSection, EntityType, ExportKind, TableType, TypeSection,
    reencode::{self, Reencode},
};
use wasmparser::{CompositeInnerType, FuncType, Payload, TypeRef};

/// What the second half calls the first.
pub const FIRST: &str = "first";

/// Counts functions anew.
pub struct Renumbered(pub BTreeMap<u32, u32>);

impl Reencode for Renumbered {
    type Error = String;

    fn function_index(&mut self, function: u32) -> Result<u32, reencode::Error<String>> {
        let lacks = || reencode::Error::UserError(format!("function {function} is in no half"));
        self.0.get(&function).copied().ok_or_else(lacks)
    }
}

/// Pieces of what is in memory from the start, each with its address.
type Pieces<'a> = Vec<(u32, &'a [u8])>;

pub struct Plan<'a> {
    pub whole: &'a Whole<'a>,
    /// Functions of the second half.
    pub second: &'a BTreeSet<u32>,
    /// Functions of the second half that the first has stubs of, and their places in the table.
    pub stubs: BTreeMap<u32, u32>,
    /// Functions of the first half, or of the host, that the second calls.
    pub lent: BTreeSet<u32>,
    /// Types of functions, by their indices. The one behind them takes and gives nothing.
    types: Vec<FuncType>,
    /// Places in the table.
    places: u32,
    /// Data of the first half, by the address, and of the second.
    pub data: [Pieces<'a>; 2],
}

impl<'a> Plan<'a> {
    pub fn make(whole: &'a Whole<'a>, choice: &'a Choice, text: &[u8]) -> Result<Self, String> {
        let second = &choice.second;
        let is_second = |function: &u32| second.contains(function);
        let mut places = table_length(whole)?;
        let mut stubs: BTreeMap<u32, u32> = BTreeMap::new();
        for (place, function) in &whole.places {
            if is_second(function) {
                stubs.entry(*function).or_insert(*place);
            }
        }
        let firsts = whole.defined().filter(|function| !is_second(function));
        let called = firsts.flat_map(|function| whole.called_by(function)).copied();
        let exported = whole.exports.iter().map(|(_, function)| *function);
        for function in called.chain(exported).chain(whole.start).filter(is_second) {
            stubs.entry(function).or_insert_with(|| {
                places += 1;
                places - 1
            });
        }
        let calls = second.iter().flat_map(|function| whole.called_by(*function));
        let lent = calls.filter(|function| !is_second(function)).copied().collect();
        let data = data(whole, text)?;
        Ok(Self { whole, second, stubs, lent, types: types(whole)?, places, data })
    }

    pub fn firsts(&self) -> impl Iterator<Item = u32> {
        self.whole.defined().filter(|function| !self.second.contains(function))
    }

    /// The type of functions that take and give nothing.
    pub fn nothing(&self) -> u32 {
        self.types.len() as u32
    }

    /// The section of types.
    pub fn type_section(&self) -> Result<TypeSection, String> {
        let mut section = TypeSection::new();
        let mut as_it_was = Renumbered(BTreeMap::new());
        for payload in &self.whole.payloads {
            if let Payload::TypeSection(types) = payload {
                as_it_was.parse_type_section(&mut section, types.clone()).map_err(said)?;
            }
        }
        section.ty().function([], []);
        Ok(section)
    }

    pub fn type_of(&self, function: u32) -> Result<u32, String> {
        let of = self.whole.types.get(function as usize);
        of.copied().ok_or_else(|| format!("function {function} has no type"))
    }

    /// How many parameters a function has.
    pub fn parameters(&self, function: u32) -> Result<u32, String> {
        let of = self.types.get(self.type_of(function)? as usize);
        Ok(of.ok_or("a type is missing")?.params().len() as u32)
    }

    pub fn body(
        &self,
        as_new: &mut Renumbered,
        code: &mut CodeSection,
        function: u32,
    ) -> Result<(), String> {
        let body = self.whole.bodies.get((function - self.whole.imported) as usize);
        let body = body.ok_or_else(|| format!("function {function} has no body"))?;
        as_new.parse_function_body(code, body.clone()).map_err(said)
    }

    /// The `index`th table, with room for the places that are new.
    pub fn table(&self, index: u32, of: wasmparser::TableType) -> Result<TableType, String> {
        let mut of = Renumbered(BTreeMap::new()).table_type(of).map_err(said)?;
        if index == self.whole.table {
            of.minimum = self.places.into();
            of.maximum = of.maximum.map(|most| most.max(of.minimum));
        }
        Ok(of)
    }

    /// Everything but functions that a body may name by an index: of each kind in their order.
    pub fn shared(&self) -> Result<Vec<(ExportKind, u32, EntityType)>, String> {
        let mut all = Shared::default();
        for payload in &self.whole.payloads {
            match payload {
                Payload::ImportSection(imports) => {
                    for import in imports.clone().into_imports() {
                        let of = import.map_err(said)?.ty;
                        if !matches!(of, TypeRef::Func(_) | TypeRef::FuncExact(_)) {
                            all.add(Renumbered(BTreeMap::new()).entity_type(of).map_err(said)?);
                        }
                    }
                }
                Payload::TableSection(tables) => {
                    for (index, table) in (0..).zip(tables.clone()) {
                        all.add(EntityType::Table(self.table(index, table.map_err(said)?.ty)?));
                    }
                }
                Payload::MemorySection(memories) => {
                    for memory in memories.clone() {
                        all.of(TypeRef::Memory(memory.map_err(said)?))?;
                    }
                }
                Payload::TagSection(tags) => {
                    for tag in tags.clone() {
                        all.of(TypeRef::Tag(tag.map_err(said)?))?;
                    }
                }
                Payload::GlobalSection(globals) => {
                    for global in globals.clone() {
                        all.of(TypeRef::Global(global.map_err(said)?.ty))?;
                    }
                }
                _ => {}
            }
        }
        Ok(all.found)
    }
}

#[derive(Default)]
struct Shared {
    found: Vec<(ExportKind, u32, EntityType)>,
    counts: BTreeMap<u8, u32>,
}

impl Shared {
    fn of(&mut self, of: TypeRef) -> Result<(), String> {
        self.add(Renumbered(BTreeMap::new()).entity_type(of).map_err(said)?);
        Ok(())
    }

    fn add(&mut self, of: EntityType) {
        let kind = match of {
            EntityType::Table(_) => ExportKind::Table,
            EntityType::Memory(_) => ExportKind::Memory,
            EntityType::Tag(_) => ExportKind::Tag,
            EntityType::Global(_) => ExportKind::Global,
            EntityType::Function(_) | EntityType::FunctionExact(_) => ExportKind::Func,
        };
        let count = self.counts.entry(kind as u8).or_default();
        self.found.push((kind, *count, of));
        *count += 1;
    }
}

fn table_length(whole: &Whole<'_>) -> Result<u32, String> {
    for payload in &whole.payloads {
        if let Payload::TableSection(tables) = payload {
            let table = tables.clone().into_iter().nth(whole.table as usize);
            let table = table.ok_or("no table of functions")?.map_err(said)?;
            return u32::try_from(table.ty.initial).map_err(said);
        }
    }
    Err("no table".to_owned())
}

/// The data, cut where `text` stands.
fn data<'a>(whole: &Whole<'a>, text: &[u8]) -> Result<[Pieces<'a>; 2], String> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for (address, bytes) in &whole.data {
        let at = bytes.windows(text.len()).position(|part| part == text);
        let Some((before, rest)) = at.and_then(|at| bytes.split_at_checked(at)) else {
            first.push((*address, *bytes));
            continue;
        };
        let (found, behind) = rest.split_at(text.len());
        let address_of_text = address + before.len() as u32;
        first.push((*address, before));
        second.push((address_of_text, found));
        first.push((address_of_text + found.len() as u32, behind));
    }
    match second.len() {
        1 => Ok([first, second]),
        _ => Err("the text of the second half is not in memory".to_owned()),
    }
}

/// The section of some data.
pub fn data_section(data: &[(u32, &[u8])]) -> Result<DataSection, String> {
    let mut section = DataSection::new();
    for (address, bytes) in data {
        let offset = ConstExpr::i32_const(i32::try_from(*address).map_err(said)?);
        section.active(0, &offset, bytes.iter().copied());
    }
    Ok(section)
}

fn types(whole: &Whole<'_>) -> Result<Vec<FuncType>, String> {
    let mut all = Vec::new();
    for payload in &whole.payloads {
        let Payload::TypeSection(types) = payload else { continue };
        for group in types.clone() {
            for of in group.map_err(said)?.into_types() {
                let CompositeInnerType::Func(of) = of.composite_type.inner else {
                    return Err("a type is no function's".to_owned());
                };
                all.push(of);
            }
        }
    }
    Ok(all)
}

/// What the first half exports a function as. No name of the glue code's is a number.
pub fn lent_name(function: u32) -> String {
    format!("{function:x}")
}

/// The same of anything else.
pub fn shared_name(kind: ExportKind, index: u32) -> String {
    format!("{}:{index}", kind as u8)
}
