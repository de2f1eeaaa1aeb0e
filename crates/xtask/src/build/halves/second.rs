//! Writes the second half: functions, and the elements that put them at their places.
//!
//! Invariant: it has no memory and no table of its own, and wants nothing of the host that
//! the first half does not have.

use super::{
    module::said,
    plan::{FIRST, Plan, Renumbered, data_section, lent_name, shared_name},
};
use wasm_encoder::{
    CodeSection, ConstExpr, ElementSection, Elements, EntityType, FunctionSection, ImportSection,
    Module, reencode::Reencode,
};

/// The module, and the names of its functions by index.
pub fn write(plan: &Plan<'_>) -> Result<(Vec<u8>, Vec<String>), String> {
    let order: Vec<u32> = plan.lent.iter().chain(plan.second).copied().collect();
    let names = order.iter().map(|function| plan.whole.name(*function).to_owned()).collect();
    let mut as_new = Renumbered(order.into_iter().zip(0..).collect());
    let mut imports = ImportSection::new();
    for function in &plan.lent {
        let of = EntityType::Function(plan.type_of(*function)?);
        imports.import(FIRST, &lent_name(*function), of);
    }
    for (kind, index, of) in plan.shared()? {
        imports.import(FIRST, &shared_name(kind, index), of);
    }
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    for function in plan.second {
        functions.function(plan.type_of(*function)?);
        plan.body(&mut as_new, &mut code, *function)?;
    }
    let mut module = Module::new();
    module.section(&plan.type_section()?).section(&imports).section(&functions);
    let [_, data] = &plan.data;
    module.section(&elements(plan, &mut as_new)?).section(&code).section(&data_section(data)?);
    Ok((module.finish(), names))
}

fn elements(plan: &Plan<'_>, as_new: &mut Renumbered) -> Result<ElementSection, String> {
    let mut placed = plan.whole.places.clone();
    placed.extend(plan.stubs.iter().map(|(function, place)| (*place, *function)));
    placed.retain(|(_, function)| plan.second.contains(function));
    placed.sort_unstable();
    placed.dedup();
    let mut section = ElementSection::new();
    for run in placed.chunk_by(|(one, _), (next, _)| one + 1 == *next) {
        let [(place, _), ..] = run else { continue };
        let functions: Result<Vec<u32>, _> =
            run.iter().map(|(_, function)| as_new.function_index(*function)).collect();
        let offset = ConstExpr::i32_const(i32::try_from(*place).map_err(said)?);
        let functions = Elements::Functions(functions.map_err(said)?.into());
        section.active(Some(plan.whole.table), &offset, functions);
    }
    Ok(section)
}
