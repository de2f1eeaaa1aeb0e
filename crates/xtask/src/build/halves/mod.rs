//! Cuts the Worker's module in two: what every request needs, and what only an operator does.
//!
//! The second half is instantiated when something of it is first called. It shares memory, table
//! and globals with the first and there is nothing twice, so for Rust there is one program: no
//! source says where the cut is, but for names in `choice.rs`.
//!
//! Invariant: wherever a function lies, a call of it does the same. In the first half a function of
//! the second is a stub: it loads that half if that is not there yet, and calls the function
//! through a place in the table, which the second half fills when it is instantiated. Nothing here
//! optimises, and nothing knows what the functions do.

mod choice;
mod first;
mod module;
mod plan;
mod second;

pub use choice::OPERATORS;

/// The two modules, and which function of each is which.
#[derive(Debug)]
pub struct Halves {
    pub first: Vec<u8>,
    pub second: Vec<u8>,
    /// Names by index, of the first and of the second.
    pub names: [Vec<String>; 2],
}

/// What goes into the second half.
#[derive(Debug, Clone, Copy)]
pub struct Seconds<'a> {
    /// Parts of functions' names: they, and what is only reached by them.
    pub functions: &'a [&'a str],
    /// A text that nothing else reads: memory has it when the second half was loaded.
    pub text: &'a [u8],
}

/// Cuts `whole`, which has names.
pub fn cut(whole: &[u8], seconds: Seconds<'_>) -> Result<Halves, String> {
    let whole = module::Whole::read(whole)?;
    let choice = choice::Choice::make(&whole, seconds.functions)?;
    let plan = plan::Plan::make(&whole, &choice, seconds.text)?;
    let (first, first_names) = first::write(&plan)?;
    let (second, second_names) = second::write(&plan)?;
    Ok(Halves { first, second, names: [first_names, second_names] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use wasm_encoder::{
        CodeSection, ConstExpr, DataSection, ElementSection, Elements, EntityType, ExportKind,
        ExportSection, Function, FunctionSection, GlobalSection, GlobalType, ImportSection,
        MemorySection, MemoryType, Module, NameMap, NameSection, RefType, TableSection, TableType,
        TypeSection, ValType,
    };
    use wasmi::{Engine, Extern, Instance, Linker, Store, Val};

    const SECONDS: Seconds<'_> = Seconds { functions: &["admin::"], text: b"long text" };

    /// The functions, by their numbers; the host's is 0.
    const NAMES: [&str; 7] =
        ["host", "first", "admin::asked", "admin_only", "shared", "admin::placed", "by_place"];
    const DATA: &[u8] = b"before, a long text, behind";

    /// `first(x)` asks the second half, which asks itself, the first half, the host and a global;
    /// `by_place(p)` calls what is at the place `p` of the table.
    fn whole() -> Vec<u8> {
        let mut types = TypeSection::new();
        types.ty().function([ValType::I32], [ValType::I32]);
        let mut imports = ImportSection::new();
        imports.import("host", "host", EntityType::Function(0));
        let mut functions = FunctionSection::new();
        NAMES.iter().skip(1).for_each(|_| {
            functions.function(0);
        });
        let mut tables = TableSection::new();
        let (minimum, maximum) = (3, Some(3));
        let element_type = RefType::FUNCREF;
        let table = TableType { element_type, table64: false, minimum, maximum, shared: false };
        tables.table(table);
        let mut memories = MemorySection::new();
        let (maximum, page_size_log2) = (None, None);
        let memory =
            MemoryType { minimum: 1, maximum, memory64: false, shared: false, page_size_log2 };
        memories.memory(memory);
        let mut globals = GlobalSection::new();
        let of = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
        globals.global(of, &ConstExpr::i32_const(1000));
        let mut exports = ExportSection::new();
        for (name, index) in [("first", 1), ("asked", 2), ("by_place", 6)] {
            exports.export(name, ExportKind::Func, index);
        }
        exports.export("memory", ExportKind::Memory, 0);
        let mut elements = ElementSection::new();
        let placed = Elements::Functions((&[4, 5][..]).into());
        elements.active(None, &ConstExpr::i32_const(1), placed);
        let mut code = CodeSection::new();
        let mut body = |write: &dyn Fn(&mut wasm_encoder::InstructionSink<'_>)| {
            let mut function = Function::new([]);
            write(function.instructions().local_get(0));
            function.instructions().end();
            code.function(&function);
        };
        body(&|code| {
            code.call(2).i32_const(1).i32_add();
        });
        body(&|code| {
            code.call(3).call(4).call(0).global_get(0).i32_add();
        });
        body(&|code| {
            code.i32_const(2).i32_mul();
        });
        body(&|code| {
            code.i32_const(10).i32_add();
        });
        body(&|code| {
            code.call(3).i32_const(7).i32_add();
        });
        body(&|code| {
            code.local_get(0).call_indirect(0, 0);
        });
        let mut map = NameMap::new();
        (0..).zip(NAMES).for_each(|(i, name)| map.append(i, name));
        let mut names = NameSection::new();
        names.functions(&map);
        let mut module = Module::new();
        module.section(&types).section(&imports).section(&functions).section(&tables);
        module.section(&memories).section(&globals).section(&exports).section(&elements);
        let mut data = DataSection::new();
        data.active(0, &ConstExpr::i32_const(8), DATA.iter().copied());
        module.section(&code).section(&data).section(&names);
        module.finish()
    }

    /// Instances of both halves, the second made when it is asked for; and how often it was.
    struct Running {
        store: Store<()>,
        first: Instance,
        loads: Arc<Mutex<u32>>,
    }

    impl Running {
        fn new(halves: &Halves) -> Self {
            let engine = Engine::default();
            let module = |bytes: &[u8]| wasmi::Module::new(&engine, bytes).unwrap();
            let (first, second) = (module(&halves.first), module(&halves.second));
            let mut store = Store::new(&engine, ());
            let mut linker = Linker::<()>::new(&engine);
            linker.func_wrap("host", "host", |x: i32| x + 100).unwrap();
            let loads = Arc::new(Mutex::new(0));
            let lent: Arc<Mutex<Vec<(String, Extern)>>> = Arc::default();
            let (of_load, counted) = (lent.clone(), loads.clone());
            let load = move |mut caller: wasmi::Caller<'_, ()>| {
                *counted.lock().unwrap() += 1;
                let mut linker = Linker::<()>::new(caller.engine());
                for (name, item) in of_load.lock().unwrap().iter() {
                    linker.define("first", name, *item).unwrap();
                }
                linker.instantiate_and_start(&mut caller, &second).map(drop).unwrap();
            };
            linker.func_wrap("second", "load", load).unwrap();
            let first = linker.instantiate_and_start(&mut store, &first).unwrap();
            let exports = first.exports(&store).map(|it| (it.name().to_owned(), it.into_extern()));
            lent.lock().unwrap().extend(exports);
            Self { store, first, loads }
        }

        fn call(&mut self, name: &str, x: i32) -> i32 {
            let function = self.first.get_func(&self.store, name).unwrap();
            let mut given = [Val::I32(0)];
            function.call(&mut self.store, &[Val::I32(x)], &mut given).unwrap();
            given[0].i32().unwrap()
        }

        fn memory(&self) -> &[u8] {
            let memory = self.first.get_memory(&self.store, "memory").unwrap();
            &memory.data(&self.store)[8..8 + DATA.len()]
        }

        fn loads(&self) -> u32 {
            *self.loads.lock().unwrap()
        }
    }

    #[test]
    fn halves_do_together_what_the_whole_did() {
        let halves = cut(&whole(), SECONDS).unwrap();
        for half in [&halves.first, &halves.second] {
            wasmparser::Validator::new().validate_all(half).unwrap();
        }
        // By a call, by an export and by a place: each in an instance of its own.
        for (name, x, given) in [("first", 5, 1121), ("asked", 5, 1120), ("by_place", 2, 11)] {
            let mut running = Running::new(&halves);
            assert_eq!((running.call("by_place", 1), running.loads()), (11, 0), "{name}");
            assert_eq!(running.memory(), b"before, a \0\0\0\0\0\0\0\0\0, behind");
            for _ in 0..2 {
                assert_eq!((running.call(name, x), running.loads()), (given, 1), "{name}");
            }
            assert_eq!(running.memory(), DATA);
        }
    }

    #[test]
    fn nothing_is_in_both_and_each_number_has_its_name() {
        let halves = cut(&whole(), SECONDS).unwrap();
        let [first, second] = &halves.names;
        let stubs = ["admin::asked (stub)", "admin::placed (stub)", "load (stub)"];
        let expected = [&["host", "load", "first", "shared", "by_place"][..], &stubs].concat();
        assert_eq!(first, &expected);
        // What is lent, and its own.
        assert_eq!(second, &["host", "shared", "admin::asked", "admin_only", "admin::placed"]);
    }

    #[test]
    fn a_text_that_is_not_there_is_a_mistake() {
        let why = cut(&whole(), Seconds { text: b"no text", ..SECONDS }).unwrap_err();
        assert_eq!(why, "the text of the second half is not in memory");
    }

    #[test]
    fn a_name_that_nothing_has_is_a_mistake() {
        let why =
            cut(&whole(), Seconds { functions: &["admin::", "gone::"], ..SECONDS }).unwrap_err();
        assert_eq!(why, "no function is called \"gone::\": was it made a part of another?");
    }
}
