//! Writes the first half: the whole module, with stubs in place of what lies in the second.
//!
//! Invariant: for the host it is the whole module: the same exports, imports and data, and one
//! function that it wants beside, [`LOAD`].

use super::{
    module::said,
    plan::{Plan, Renumbered, data_section, lent_name, shared_name},
};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, ElementSection, EntityType, ExportKind, ExportSection,
    Function, FunctionSection, GlobalSection, GlobalType, ImportSection, MemorySection, Module,
    StartSection, TableSection, TagSection, ValType, reencode::Reencode,
};
use wasmparser::Payload;

/// Where the host has [`LOAD`].
const SECOND: &str = "second";
/// The function of the host that instantiates the second half.
const LOAD: &str = "load";

struct First<'a> {
    plan: &'a Plan<'a>,
    as_new: Renumbered,
    /// The function that has the second half loaded.
    ensure: u32,
    /// The global that says whether that was done.
    is_loaded: u32,
}

/// The module, and the names of its functions by index.
pub fn write(plan: &Plan<'_>) -> Result<(Vec<u8>, Vec<String>), String> {
    let whole = plan.whole;
    // The host's, the one that loads, those of this half, the stubs, and the one that they all ask.
    let order = (0..whole.imported).map(Some).chain([None]).chain(plan.firsts().map(Some));
    let order: Vec<Option<u32>> = order.chain(plan.stubs.keys().copied().map(Some)).collect();
    let numbered = (0..).zip(&order).filter_map(|(new, old)| Some(((*old)?, new)));
    let as_new = Renumbered(numbered.collect());
    let name = |function: &Option<u32>| match function {
        Some(function) if plan.second.contains(function) => {
            format!("{} (stub)", whole.name(*function))
        }
        Some(function) => whole.name(*function).to_owned(),
        None => LOAD.to_owned(),
    };
    let mut names: Vec<String> = order.iter().map(name).collect();
    names.push(format!("{LOAD} (stub)"));
    let globals = plan.shared()?.iter().filter(|(kind, ..)| *kind == ExportKind::Global).count();
    let (ensure, is_loaded) = (order.len() as u32, globals as u32);
    let mut first = First { plan, as_new, ensure, is_loaded };
    let mut module = Module::new();
    for payload in &whole.payloads {
        first.copy(payload, &mut module)?;
    }
    Ok((module.finish(), names))
}

impl First<'_> {
    /// Copies a section, with what is new in it. Custom ones go, and the number of pieces of data,
    /// which only code needs that copies them.
    fn copy(&mut self, payload: &Payload<'_>, to: &mut Module) -> Result<(), String> {
        let as_new = &mut self.as_new;
        match payload {
            Payload::TypeSection(_) => to.section(&self.plan.type_section()?),
            Payload::ImportSection(imports) => to.section(&self.imports(imports.clone())?),
            Payload::FunctionSection(_) => to.section(&self.functions()?),
            Payload::TableSection(tables) => to.section(&self.tables(tables.clone())?),
            Payload::MemorySection(memories) => {
                let mut section = MemorySection::new();
                as_new.parse_memory_section(&mut section, memories.clone()).map_err(said)?;
                to.section(&section)
            }
            Payload::TagSection(tags) => {
                let mut section = TagSection::new();
                as_new.parse_tag_section(&mut section, tags.clone()).map_err(said)?;
                to.section(&section)
            }
            Payload::GlobalSection(globals) => {
                let mut section = GlobalSection::new();
                as_new.parse_global_section(&mut section, globals.clone()).map_err(said)?;
                let of = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
                section.global(of, &ConstExpr::i32_const(0));
                to.section(&section)
            }
            Payload::ExportSection(exports) => to.section(&self.exports(exports.clone())?),
            Payload::StartSection { func, .. } => {
                let function_index = as_new.function_index(*func).map_err(said)?;
                to.section(&StartSection { function_index })
            }
            Payload::ElementSection(elements) => {
                let mut section = ElementSection::new();
                as_new.parse_element_section(&mut section, elements.clone()).map_err(said)?;
                to.section(&section)
            }
            Payload::CodeSectionStart { .. } => to.section(&self.code()?),
            Payload::DataSection(_) => {
                let [data, _] = &self.plan.data;
                to.section(&data_section(data)?)
            }
            _ => to,
        };
        Ok(())
    }

    fn imports(
        &mut self,
        imports: wasmparser::ImportSectionReader<'_>,
    ) -> Result<ImportSection, String> {
        let mut section = ImportSection::new();
        self.as_new.parse_import_section(&mut section, imports).map_err(said)?;
        section.import(SECOND, LOAD, EntityType::Function(self.plan.nothing()));
        Ok(section)
    }

    fn functions(&self) -> Result<FunctionSection, String> {
        let mut section = FunctionSection::new();
        for function in self.plan.firsts().chain(self.plan.stubs.keys().copied()) {
            section.function(self.plan.type_of(function)?);
        }
        section.function(self.plan.nothing());
        Ok(section)
    }

    fn tables(&self, tables: wasmparser::TableSectionReader<'_>) -> Result<TableSection, String> {
        let mut section = TableSection::new();
        for (index, table) in (0..).zip(tables) {
            section.table(self.plan.table(index, table.map_err(said)?.ty)?);
        }
        Ok(section)
    }

    /// Those of the whole, and what the second half needs.
    fn exports(
        &mut self,
        exports: wasmparser::ExportSectionReader<'_>,
    ) -> Result<ExportSection, String> {
        let mut section = ExportSection::new();
        self.as_new.parse_export_section(&mut section, exports).map_err(said)?;
        for function in &self.plan.lent {
            let index = self.as_new.function_index(*function).map_err(said)?;
            section.export(&lent_name(*function), ExportKind::Func, index);
        }
        for (kind, index, _) in self.plan.shared()? {
            section.export(&shared_name(kind, index), kind, index);
        }
        Ok(section)
    }

    fn code(&mut self) -> Result<CodeSection, String> {
        let mut section = CodeSection::new();
        for function in self.plan.firsts() {
            self.plan.body(&mut self.as_new, &mut section, function)?;
        }
        for (function, place) in &self.plan.stubs {
            section.function(&self.stub(*function, *place)?);
        }
        section.function(&self.ensuring());
        Ok(section)
    }

    /// Loads the second half, and calls the function that then is at its place.
    fn stub(&self, function: u32, place: u32) -> Result<Function, String> {
        let mut stub = Function::new([]);
        let mut code = stub.instructions();
        code.call(self.ensure);
        for parameter in 0..self.plan.parameters(function)? {
            code.local_get(parameter);
        }
        code.i32_const(i32::try_from(place).map_err(said)?);
        code.call_indirect(self.plan.whole.table, self.plan.type_of(function)?).end();
        Ok(stub)
    }

    /// Loads the second half if that was not done. What the host throws leaves it undone.
    fn ensuring(&self) -> Function {
        let mut function = Function::new([]);
        let mut code = function.instructions();
        code.global_get(self.is_loaded).i32_eqz().if_(BlockType::Empty);
        code.call(self.plan.whole.imported).i32_const(1).global_set(self.is_loaded).end().end();
        function
    }
}
