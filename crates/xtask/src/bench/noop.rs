//! The smallest proxy-wasm filter: a module that returns "continue" and calls nothing.
//!
//! Invariant: the cost of a request with it is Envoy's cost for entering wasm once; no filter can
//! be cheaper. It exports the functions that Envoy needs to load it and one callback.

use crate::{files, problem::Result, workspace::Workspace};
use std::path::PathBuf;
use wasm_encoder::{
    CodeSection, ExportKind, ExportSection, Function, FunctionSection, MemorySection, MemoryType,
    Module, TypeSection, ValType,
};

/// Somewhere in the first page; nothing is ever written there.
const ANYWHERE: i32 = 1024;
/// `Action::Continue` of proxy-wasm 0.2.1.
const CONTINUE: i32 = 0;

/// Writes it; its place.
pub fn write(workspace: &Workspace) -> Result<PathBuf> {
    let file = workspace.out.join("run/noop.wasm");
    files::write(&file, module())?;
    Ok(file)
}

fn module() -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([], []);
    types.ty().function([ValType::I32], [ValType::I32]);
    types.ty().function([ValType::I32; 3], [ValType::I32]);
    let mut functions = FunctionSection::new();
    functions.function(0).function(1).function(2);
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 1,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    exports.export("proxy_abi_version_0_2_1", ExportKind::Func, 0);
    exports.export("malloc", ExportKind::Func, 1);
    exports.export("proxy_on_request_headers", ExportKind::Func, 2);
    let mut code = CodeSection::new();
    code.function(&body(None)).function(&body(Some(ANYWHERE))).function(&body(Some(CONTINUE)));
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&memories);
    module.section(&exports).section(&code);
    module.finish()
}

/// A function that returns this, whatever its arguments.
fn body(result: Option<i32>) -> Function {
    let mut function = Function::new([]);
    let mut instructions = function.instructions();
    if let Some(value) = result {
        instructions.i32_const(value);
    }
    instructions.end();
    function
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::exports;

    #[test]
    fn it_wants_nothing_and_offers_what_envoy_needs() {
        assert_eq!(exports::imports(&module()).unwrap(), [""; 0]);
        let names = ["memory", "malloc", "proxy_abi_version_0_2_1", "proxy_on_request_headers"];
        assert!(exports::keep_only(&module(), &names).is_ok());
        assert!(wasmparser::validate(&module()).is_ok());
    }
}
