//! What is known of a module before it is cut: its functions, who calls whom, and what the host and
//! the table have of them.
//!
//! Invariant: everything by which a function can be reached is here: calls, exports, elements, the
//! start, and references to it. Nothing is decided here.

use std::collections::BTreeMap;
use wasmparser::{
    ConstExpr, DataKind, ElementItems, ElementKind, ExternalKind, FunctionBody, KnownCustom, Name,
    Operator, Parser, Payload, TypeRef,
};

/// A whole module, read.
pub struct Whole<'a> {
    pub payloads: Vec<Payload<'a>>,
    /// Functions that the host gives; they have the first indices.
    pub imported: u32,
    /// The type of each function, with the imported ones.
    pub types: Vec<u32>,
    pub bodies: Vec<FunctionBody<'a>>,
    /// Which functions each body calls or refers to.
    pub calls: Vec<Vec<u32>>,
    pub names: BTreeMap<u32, &'a str>,
    /// Functions by the names that the host calls them.
    pub exports: Vec<(&'a str, u32)>,
    /// Functions by their places in the table.
    pub places: Vec<(u32, u32)>,
    /// The table of functions.
    pub table: u32,
    pub start: Option<u32>,
    /// What is in memory from the start, by the address.
    pub data: Vec<(u32, &'a [u8])>,
}

impl<'a> Whole<'a> {
    pub fn read(module: &'a [u8]) -> Result<Self, String> {
        let payloads: Result<Vec<Payload<'a>>, _> = Parser::new(0).parse_all(module).collect();
        let payloads = payloads.map_err(said)?;
        let mut whole = Self {
            payloads: Vec::new(),
            imported: 0,
            types: Vec::new(),
            bodies: Vec::new(),
            calls: Vec::new(),
            names: BTreeMap::new(),
            exports: Vec::new(),
            places: Vec::new(),
            table: 0,
            start: None,
            data: Vec::new(),
        };
        for payload in &payloads {
            whole.take(payload)?;
        }
        whole.payloads = payloads;
        Ok(whole)
    }

    fn take(&mut self, payload: &Payload<'a>) -> Result<(), String> {
        match payload {
            Payload::ImportSection(imports) => {
                for import in imports.clone().into_imports() {
                    if let TypeRef::Func(of) = import.map_err(said)?.ty {
                        self.types.push(of);
                        self.imported += 1;
                    }
                }
            }
            Payload::FunctionSection(types) => {
                for of in types.clone() {
                    self.types.push(of.map_err(said)?);
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports.clone() {
                    let export = export.map_err(said)?;
                    if export.kind == ExternalKind::Func {
                        self.exports.push((export.name, export.index));
                    }
                }
            }
            Payload::StartSection { func, .. } => self.start = Some(*func),
            Payload::ElementSection(elements) => {
                for element in elements.clone() {
                    self.element(element.map_err(said)?)?;
                }
            }
            Payload::DataSection(data) => {
                for data in data.clone() {
                    let data = data.map_err(said)?;
                    let DataKind::Active { memory_index: 0, offset_expr } = data.kind else {
                        return Err("data that is not in memory from the start".to_owned());
                    };
                    self.data.push((constant(&offset_expr)?, data.data));
                }
            }
            Payload::CodeSectionEntry(body) => {
                self.calls.push(called(body)?);
                self.bodies.push(body.clone());
            }
            Payload::CustomSection(custom) => {
                if let KnownCustom::Name(names) = custom.as_known() {
                    self.named(names)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An element of the table, which stands at a place that is known.
    fn element(&mut self, element: wasmparser::Element<'a>) -> Result<(), String> {
        let ElementKind::Active { table_index, offset_expr } = element.kind else { return Ok(()) };
        let ElementItems::Functions(functions) = element.items else {
            return Ok(()); // of values that are no functions
        };
        self.table = table_index.unwrap_or(0);
        let first = constant(&offset_expr)?;
        for (place, function) in (first..).zip(functions) {
            self.places.push((place, function.map_err(said)?));
        }
        Ok(())
    }

    fn named(&mut self, names: wasmparser::NameSectionReader<'a>) -> Result<(), String> {
        for name in names {
            if let Name::Function(functions) = name.map_err(said)? {
                for naming in functions {
                    let naming = naming.map_err(said)?;
                    self.names.insert(naming.index, naming.name);
                }
            }
        }
        Ok(())
    }

    /// The functions that have a body.
    pub fn defined(&self) -> impl Iterator<Item = u32> + use<> {
        self.imported..self.types.len() as u32
    }

    /// What the function calls, if it has a body.
    pub fn called_by(&self, function: u32) -> &[u32] {
        let body = function.checked_sub(self.imported).map(|body| body as usize);
        body.and_then(|body| self.calls.get(body)).map_or(&[], Vec::as_slice)
    }

    pub fn name(&self, function: u32) -> &'a str {
        self.names.get(&function).copied().unwrap_or_default()
    }
}

/// A place in a table or an address.
fn constant(of: &ConstExpr<'_>) -> Result<u32, String> {
    match of.get_operators_reader().read().map_err(said)? {
        Operator::I32Const { value } => u32::try_from(value).map_err(said),
        other => Err(format!("an address that is no constant: {other:?}")),
    }
}

fn called(body: &FunctionBody<'_>) -> Result<Vec<u32>, String> {
    let mut called = Vec::new();
    for operator in body.get_operators_reader().map_err(said)? {
        match operator.map_err(said)? {
            Operator::Call { function_index }
            | Operator::ReturnCall { function_index }
            | Operator::RefFunc { function_index } => called.push(function_index),
            _ => {}
        }
    }
    called.sort_unstable();
    called.dedup();
    Ok(called)
}

pub fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
