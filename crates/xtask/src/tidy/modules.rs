//! The modules of one crate: their files, definitions and imports.
//!
//! Invariant: a path resolves to the file that defines the named item, through re-exports, aliases
//! and globs; a path that leads outside this crate (another crate's items, local variables) has no
//! file. Test code is not part of a crate here. An item that a macro makes is found at the module
//! that its path names, because macros are not expanded.

use super::source;
use std::collections::{BTreeMap, BTreeSet};
use syn::{File, Item, ItemMod, ItemUse, UseTree, visit::Visit};

/// Parsed files by their path relative to the root of the repository.
pub type Files = BTreeMap<String, File>;

/// A module's place in [`Crate::modules`].
pub type Id = usize;

/// Every module of a crate except tests.
pub struct Crate<'a> {
    files: &'a Files,
    pub modules: Vec<Module<'a>>,
    /// The file of each `macro_rules!`: their scope is the text, not a module.
    macros: BTreeMap<String, String>,
}

pub struct Module<'a> {
    /// The file that its items stand in.
    pub file: String,
    pub items: &'a [Item],
    parent: Option<Id>,
    /// In the order in which they are declared.
    pub children: Vec<(String, Id)>,
    defined: BTreeSet<String>,
    imported: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Module(Id),
    /// An item in this file.
    Item(String),
}

impl<'a> Crate<'a> {
    /// Reads the crate whose first file is `root`, as far as its files are known.
    pub fn read(root: &str, files: &'a Files) -> Self {
        let mut this = Self { files, modules: Vec::new(), macros: BTreeMap::new() };
        if let Some(file) = files.get(root) {
            let folder = parent_of(root).to_owned();
            this.add(root, &folder, None, &file.items);
        }
        this
    }

    /// The files of the crate, the first one first.
    pub fn files(&self) -> BTreeSet<&str> {
        self.modules.iter().map(|module| module.file.as_str()).collect()
    }

    fn add(&mut self, file: &str, folder: &str, parent: Option<Id>, items: &'a [Item]) -> Id {
        let id = self.modules.len();
        let mut names = Names::default();
        items.iter().for_each(|item| names.visit_item(item));
        self.macros.extend(names.macros.iter().map(|name| (name.clone(), file.to_owned())));
        self.modules.push(Module {
            file: file.to_owned(),
            items,
            parent,
            children: Vec::new(),
            defined: items.iter().filter_map(defined).collect(),
            imported: names.imported,
            globs: names.globs,
        });
        for item in items {
            if let Item::Mod(module) = item
                && !source::is_test_item(item)
                && let Some(child) = self.add_module(file, folder, id, module)
            {
                self.modules[id].children.push((module.ident.to_string(), child));
            }
        }
        id
    }

    fn add_module(&mut self, file: &str, folder: &str, id: Id, module: &'a ItemMod) -> Option<Id> {
        let inner = format!("{folder}/{}", module.ident);
        if let Some((_, items)) = &module.content {
            return Some(self.add(file, &inner, Some(id), items));
        }
        let candidates = [format!("{inner}.rs"), format!("{inner}/mod.rs")];
        let file = candidates.into_iter().find(|file| self.files.contains_key(file))?;
        let items = &self.files.get(&file)?.items;
        Some(self.add(&file, &inner, Some(id), items))
    }

    /// The target of `path`, written in the module `from`, in this crate.
    pub fn resolve(&self, from: Id, path: &[String]) -> Option<Target> {
        self.follow(from, path, Wanted::Item, &mut BTreeSet::new())
    }

    /// True when `path` may name a module, whatever else it names.
    pub fn is_module(&self, from: Id, path: &[String]) -> bool {
        let found = self.follow(from, path, Wanted::Module, &mut BTreeSet::new());
        matches!(found, Some(Target::Module(_)))
    }

    fn follow(&self, from: Id, path: &[String], wanted: Wanted, seen: &mut Seen) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let wanted_of = |left: usize| if left > 0 { Wanted::Module } else { wanted };
        let mut at = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            name => self.lookup(from, name, wanted_of(rest.len()), seen)?,
        };
        for (index, name) in rest.iter().enumerate() {
            let Target::Module(id) = at else { return Some(at) };
            let wanted = wanted_of(rest.len() - 1 - index);
            at = match name.as_str() {
                "super" => Target::Module(self.modules[id].parent?),
                "self" => at,
                // An item that is not found was made by a macro, or is a macro itself.
                name => {
                    let made = || Target::Item(self.modules[id].file.clone());
                    self.lookup(id, name, wanted, seen).unwrap_or_else(made)
                }
            };
        }
        Some(at)
    }

    fn lookup(&self, id: Id, name: &str, wanted: Wanted, seen: &mut Seen) -> Option<Target> {
        if !seen.insert((id, name.to_owned())) {
            return None;
        }
        let found = self.lookup_in(id, name, wanted, seen);
        seen.remove(&(id, name.to_owned()));
        found
    }

    fn lookup_in(&self, id: Id, name: &str, wanted: Wanted, seen: &mut Seen) -> Option<Target> {
        let module = &self.modules[id];
        let child = module.children.iter().find(|(child, _)| child == name);
        let child = child.map(|(_, id)| Target::Module(*id));
        if wanted == Wanted::Module && child.is_some() {
            return child;
        }
        if module.defined.contains(name) {
            return Some(Target::Item(module.file.clone()));
        }
        if let Some(path) = module.imported.get(name)
            && let Some(target) = self.follow(id, path, wanted, seen)
        {
            return Some(target);
        }
        child.or_else(|| {
            module.globs.iter().find_map(|path| match self.follow(id, path, wanted, seen)? {
                Target::Module(other) => self.lookup(other, name, wanted, seen),
                Target::Item(_) => None,
            })
        })
    }

    /// The file of the `macro_rules!` of this name, if no module defines or imports it.
    pub fn macro_file(&self, name: &str) -> Option<&str> {
        self.macros.get(name).map(String::as_str)
    }
}

/// Of a module and a function that have one name, which one is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Item,
    /// The path continues.
    Module,
}

/// The names being looked up: they end imports that go round in a circle.
type Seen = BTreeSet<(Id, String)>;

/// The content of a module besides its child modules.
#[derive(Default)]
struct Names {
    imported: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    macros: Vec<String>,
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            _ if source::is_test_item(item) => {}
            Item::Mod(_) => {} // a scope of its own
            Item::Use(item) => self.visit_item_use(item),
            Item::Macro(item) => {
                self.macros.extend(item.ident.as_ref().map(ToString::to_string));
            }
            item => syn::visit::visit_item(self, item),
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for import in imports(&item.tree) {
            match import.name {
                Some(name) => {
                    self.imported.insert(name, import.path);
                }
                None => self.globs.push(import.path),
            }
        }
    }
}

/// One name, or one glob, of a `use`.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    /// Its name here; a glob has none.
    pub name: Option<String>,
    pub path: Vec<String>,
}

/// Every import of a `use`.
pub fn imports(tree: &UseTree) -> Vec<Import> {
    let mut found = Vec::new();
    collect(tree, &[], &mut found);
    found
}

fn collect(tree: &UseTree, before: &[String], found: &mut Vec<Import>) {
    let with = |name: String| [before, &[name]].concat();
    match tree {
        UseTree::Path(part) => collect(&part.tree, &with(part.ident.to_string()), found),
        UseTree::Group(group) => {
            group.items.iter().for_each(|item| collect(item, before, found));
        }
        UseTree::Glob(_) => found.push(Import { name: None, path: before.to_vec() }),
        UseTree::Name(name) if name.ident == "self" => {
            found.push(Import { name: before.last().cloned(), path: before.to_vec() });
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            found.push(Import { path: with(name.clone()), name: Some(name) });
        }
        UseTree::Rename(name) => {
            let path = with(name.ident.to_string());
            found.push(Import { name: Some(name.rename.to_string()), path });
        }
    }
}

/// The name that an item gives to its module; a module is found as a child.
fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        _ if source::is_test_item(item) => None,
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    };
    ident.map(ToString::to_string)
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}
